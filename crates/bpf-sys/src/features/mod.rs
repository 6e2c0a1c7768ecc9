//! Kernel facilities, found by trying.
//!
//! Version numbers mislead: distributions backport, configurations differ, lockdown takes
//! facilities away. So each facility is tried once, at its first use. One table below generates the
//! [`Facility`] names, the plain [`Facilities`] struct (the code generator reads it, golden tests
//! fill it by hand), and the report of [`Features::table`]. The trials themselves are in `trials`.

mod nops;
mod trials;

pub use trials::{direct_load_ids as direct_load, preempt_count_variable as preempt_count};

use std::sync::OnceLock;

macro_rules! facilities {
    ($($(#[doc = $doc:literal])+ $variant:ident $field:ident $trial:ident;)*) => {
        /// A capability of the kernel that may be absent.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Facility {
            $($(#[doc = $doc])+ $variant,)*
        }

        impl Facility {
            /// All, in the table's order.
            pub const ALL: &[Facility] = &[$(Facility::$variant,)*];

            /// The facility's name in tables and messages.
            pub fn name(self) -> &'static str {
                match self {
                    $(Facility::$variant => stringify!($field),)*
                }
            }

            /// The facility's description, one line.
            pub fn description(self) -> &'static str {
                match self {
                    $(Facility::$variant => concat!($($doc,)+).trim_ascii(),)*
                }
            }

            fn try_it(self) -> Result<(), String> {
                match self {
                    $(Facility::$variant => trials::$trial(),)*
                }
            }
        }

        /// An answer for every facility. Golden tests set them by hand. [`Features::facilities`]
        /// sets them by trying.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Facilities {
            $($(#[doc = $doc])+ pub $field: bool,)*
        }

        impl Facilities {
            /// The answer for one facility.
            pub fn has(&self, facility: Facility) -> bool {
                match facility {
                    $(Facility::$variant => self.$field,)*
                }
            }

            /// Sets the answer for one facility.
            #[must_use]
            pub fn with(mut self, facility: Facility, value: bool) -> Facilities {
                match facility {
                    $(Facility::$variant => self.$field = value,)*
                }
                self
            }
        }
    };
}

facilities! {
    /// The kernel exposes its BTF.
    Btf btf btf;
    /// Raw tracepoints.
    RawTp raw_tp raw_tp;
    /// Raw tracepoints that carry a cookie.
    RawTpCookie raw_tp_cookie raw_tp_cookie;
    /// Tracepoints with typed arguments.
    TpBtf tp_btf tp_btf;
    /// Running a raw tracepoint program without an event.
    TestRun test_run test_run;
    /// Function entry and exit by trampoline.
    Fentry fentry fentry;
    /// One link for many kernel functions.
    KprobeMulti kprobe_multi kprobe_multi;
    /// Single kprobes as perf events.
    KprobePerf kprobe_perf kprobe_perf;
    /// Single uprobes as perf events.
    UprobePerf uprobe_perf uprobe_perf;
    /// One link for many offsets of a file.
    UprobeMulti uprobe_multi uprobe_multi;
    /// Such a link for a process is for all of its threads, and not for the one thread that has its
    /// number.
    UprobeProcess uprobe_process uprobe_process;
    /// A probe at a nop of five bytes leaves the red zone of the program alone.
    UprobeNop5 uprobe_nop5 uprobe_nop5;
    /// A probe at the nop of ten bytes that becomes a call is accepted, and leaves it alone.
    UprobeNop10 uprobe_nop10 uprobe_nop10;
    /// The clock of each CPU as a perf event with a program.
    CpuClock cpu_clock cpu_clock;
    /// Records of fork, exec, exit and mappings of all processes.
    SideBand side_band side_band;
    /// Files of processes by their mapping, also deleted ones.
    MapFiles map_files map_files;
    /// Storage attached to tasks.
    TaskStorage task_storage task_storage;
    /// BPF ring buffers.
    Ringbuf ringbuf ringbuf;
    /// Array maps in shared memory.
    MmapArray mmap_array mmap_array;
    /// Array values above 4 MiB.
    BigValues big_values big_values;
    /// The helper bpf_loop.
    BpfLoop bpf_loop bpf_loop;
    /// Functions verified on their own.
    GlobalFuncs global_funcs global_funcs;
    /// The current task as a typed pointer.
    TaskBtf task_btf task_btf;
    /// The per-CPU preempt count, from which programs know their context level.
    PreemptCount preempt_count preempt_count;
    /// Programs at system calls that may sleep for a page of the process.
    SleepableCalls sleepable_calls sleepable_calls;
    /// Checked reads of kernel memory (lockdown forbids them).
    ProbeRead probe_read probe_read;
    /// Writing to user memory.
    ProbeWriteUser probe_write_user probe_write_user;
    /// Replacing the result of a kernel function.
    OverrideReturn override_return override_return;
    /// Replacing the result of a security hook, and of other functions that the kernel names.
    ModifyReturn modify_return modify_return;
    /// Kernel functions callable from tracing programs, and by them loads from any address.
    Kfuncs kfuncs kfuncs;
    /// Sign-extending moves, signed division (the fourth instruction set).
    Isa4 isa4 isa4;
}

/// What is known of the facilities of a kernel, this one or another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// The kernel's release, as `uname -r` prints it.
    pub release: String,
    /// Its lockdown level.
    pub lockdown: crate::Lockdown,
    /// Each facility by its name, with the reason where it is missing. One that is not named is
    /// missing.
    pub facilities: Vec<(String, Result<(), String>)>,
    /// Bytes of the greatest value that an array map may have.
    pub array_value: u32,
    /// Bytes of the greatest value in the storage of a task.
    pub thread_value: u32,
}

impl Default for Answers {
    /// A kernel without any facility.
    fn default() -> Answers {
        let (release, facilities) = Default::default();
        let lockdown = crate::Lockdown::None;
        Answers { release, lockdown, facilities, array_value: 0, thread_value: 0 }
    }
}

/// A kernel's facilities: those of the running kernel, each tried at its first use, or those that
/// somebody says that a kernel has, of which none is tried.
#[derive(Debug, Default)]
pub struct Features {
    cells: [OnceLock<Result<(), String>>; Facility::ALL.len()],
    /// `None`: the running kernel's.
    given: Option<Box<Answers>>,
}

/// The greatest values whose sizes are tried: of an array map, and in the storage of a task.
const ARRAY_VALUES: [u32; 4] = [64 << 10, 4 << 20, 64 << 20, 1 << 30];
const THREAD_VALUE: u32 = 1 << 17;

impl Features {
    /// The process-wide instance.
    pub fn running() -> &'static Features {
        static RUNNING: OnceLock<Features> = OnceLock::new();
        RUNNING.get_or_init(Features::default)
    }

    /// The facilities of another kernel. Nothing is tried.
    pub fn given(answers: Answers) -> Features {
        let cell = |facility: &Facility| {
            let answer = answers.facilities.iter().find(|(name, _)| name == facility.name());
            let unknown = || Err("what is known of this kernel does not say".to_owned());
            OnceLock::from(answer.map_or_else(unknown, |(_, answer)| answer.clone()))
        };
        let mut cells = [const { OnceLock::new() }; Facility::ALL.len()];
        for (place, facility) in cells.iter_mut().zip(Facility::ALL) {
            *place = cell(facility);
        }
        Features { cells, given: Some(Box::new(answers)) }
    }

    /// All that [`Features::given`] needs to give the same answers elsewhere. Tries every facility.
    pub fn answers(&self) -> Answers {
        if let Some(given) = &self.given {
            return (**given).clone();
        }
        let facilities = Facility::ALL.iter().map(|f| (f.name().to_owned(), self.result(*f).clone()));
        // Sizes are multiples of eight bytes. The greatest that is allowed is found by bisection.
        let (mut allowed, mut refused) = (0, THREAD_VALUE / 8);
        while allowed + 1 < refused {
            let middle = allowed.midpoint(refused);
            *(if trials::allows_thread_value(8 * middle) { &mut allowed } else { &mut refused }) = middle;
        }
        Answers {
            release: crate::system::release(),
            lockdown: crate::Lockdown::of_this_kernel(),
            facilities: facilities.collect(),
            array_value: ARRAY_VALUES.into_iter().rfind(|n| trials::allows_array_value(*n)).unwrap_or(0),
            thread_value: 8 * allowed,
        }
    }

    #[expect(clippy::indexing_slicing, reason = "there is a cell for each facility")]
    fn result(&self, facility: Facility) -> &Result<(), String> {
        self.cells[facility as usize].get_or_init(|| facility.try_it())
    }

    /// Whether the facility is there, for this kernel and this process.
    pub fn has(&self, facility: Facility) -> bool {
        self.result(facility).is_ok()
    }

    /// The reason why a facility is missing, `None` when it is there.
    pub fn why_not(&self, facility: Facility) -> Option<&str> {
        self.result(facility).as_ref().err().map(String::as_str)
    }

    /// The answers for `asked`. All others are false and are not tried.
    pub fn facilities(&self, asked: &[Facility]) -> Facilities {
        asked.iter().fold(Facilities::default(), |all, f| all.with(*f, self.has(*f)))
    }

    /// Whether an array map may have values of so many bytes. The trial allocates nothing: the
    /// kernel checks the size of a value before it allocates, and the trial asks for more elements
    /// than fit any machine.
    pub fn allows_array_value(&self, bytes: u32) -> bool {
        self.given.as_ref().map_or_else(|| trials::allows_array_value(bytes), |g| bytes <= g.array_value)
    }

    /// Whether a program can create a task storage value of so many bytes.
    pub fn allows_thread_value(&self, bytes: u32) -> bool {
        self.given.as_ref().map_or_else(|| trials::allows_thread_value(bytes), |g| bytes <= g.thread_value)
    }

    /// The report of all facilities, one line each, with the reason where one is missing. Tries
    /// every facility.
    pub fn table(&self) -> String {
        let given = self.given.as_deref();
        let release = given.map_or_else(crate::system::release, |given| given.release.clone());
        let mut out = format!("kernel {release}\n");
        for f in Facility::ALL {
            let answer = match self.result(*f) {
                Ok(()) => "yes".to_owned(),
                Err(reason) => format!("no   {reason}"),
            };
            out.push_str(&format!("  {:<18}{answer}\n", f.name()));
        }
        let allowed = ARRAY_VALUES.iter().rev().find(|b| self.allows_array_value(**b));
        out.push_str(&format!(
            "  {:<18}{}\n",
            "array value up to",
            allowed.map_or("?".into(), |b| b.to_string())
        ));
        let lockdown = given.map_or_else(crate::Lockdown::of_this_kernel, |given| given.lockdown);
        out.push_str(&format!("  {:<18}{lockdown}\n", "lockdown"));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_for_every_facility() {
        let start = std::time::Instant::now();
        let table = Features::running().table();
        println!("{table}(tried in {:?})", start.elapsed());
        assert!(Facility::ALL.iter().all(|f| table.contains(f.name())));
    }

    #[test]
    fn facilities_can_be_set_by_hand() {
        let f = Facilities { tp_btf: true, ..Facilities::default() };
        assert!(f.has(Facility::TpBtf) && !f.has(Facility::RawTp));
        assert!(f.with(Facility::RawTp, true).raw_tp);
        assert_eq!(Facility::TpBtf.description(), "Tracepoints with typed arguments.");
    }

    #[test]
    fn given_answers_are_not_tried() {
        let all = Answers {
            release: "9.9-mine".into(),
            facilities: vec![("raw_tp".into(), Ok(())), ("fentry".into(), Err("switched off".into()))],
            thread_value: 64,
            ..Answers::default()
        };
        let f = Features::given(all.clone());
        assert!(f.has(Facility::RawTp) && !f.has(Facility::TpBtf));
        assert_eq!(f.why_not(Facility::Fentry), Some("switched off"));
        assert!(f.allows_thread_value(64) && !f.allows_thread_value(72) && !f.allows_array_value(8));
        assert!(f.table().starts_with("kernel 9.9-mine\n"));
        assert_eq!(f.answers(), all);
    }

    #[test]
    fn only_requested_facilities_are_tried() {
        let features = Features::default();
        let _ = features.facilities(&[Facility::MmapArray]);
        let tried = Facility::ALL.iter().filter(|f| features.cells[**f as usize].get().is_some());
        assert_eq!(tried.collect::<Vec<_>>(), [&Facility::MmapArray]);
    }
}
