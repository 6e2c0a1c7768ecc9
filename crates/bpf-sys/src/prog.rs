//! Programs: loading, test runs, and information.

use crate::error::SysError;
use crate::fork::KernelFd;
use crate::insn::Insn;
use crate::map::info_by_fd;
use crate::syscall::{Cmd, addr, addr_mut, bpf, bpf_fd, name_text, object_name, raw, until_nul};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Kinds of programs that we use, by the kernel's number.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ProgKind {
    SocketFilter = 1,
    /// kprobe, uprobe and their multi forms.
    Kprobe = 2,
    Tracepoint = 5,
    PerfEvent = 7,
    RawTracepoint = 17,
    /// tp_btf, fentry, fexit.
    Tracing = 26,
    Syscall = 31,
}

/// The attach type of a program, by the kernel's number.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum AttachType {
    /// The value for program kinds without attach types.
    None = 0,
    /// tp_btf.
    TraceRawTp = 23,
    TraceFentry = 24,
    TraceFexit = 25,
    /// A program that runs before a function and may replace the function's result.
    ModifyReturn = 26,
    /// An iterator: see [`iterate_process`](crate::iterate_process).
    TraceIter = 28,
    PerfEvent = 41,
    KprobeMulti = 42,
    /// Kernels from 6.6.
    UprobeMulti = 48,
    /// Kernels from 6.12.
    KprobeSession = 56,
}

/// `BPF_F_SLEEPABLE`: the program may sleep.
pub const SLEEPABLE: u32 = 1 << 4;

/// `struct bpf_func_info`: the function that starts at a slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuncInfo {
    /// Slot.
    pub insn: u32,
    /// BTF id of the FUNC.
    pub type_id: u32,
}

/// `struct bpf_line_info`: the source line of the code from a slot on.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineInfo {
    /// The slot. Ascending, with one at each function's start.
    pub insn: u32,
    /// Offset of the file name in the BTF strings.
    pub file: u32,
    /// Offset of the line text in the BTF strings.
    pub line: u32,
    /// Line number × 1024 + column.
    pub line_col: u32,
}

/// The parameters of a load. Map references in `insns` are already file descriptors.
#[derive(Clone, Copy, Debug)]
pub struct ProgSpec<'a> {
    /// The program's kind.
    pub kind: ProgKind,
    /// The program's name, of which the kernel keeps 15 bytes.
    pub name: &'a str,
    /// The code.
    pub insns: &'a [Insn],
    /// The attach type.
    pub attach: AttachType,
    /// BTF id of the attach target (tracing programs).
    pub attach_btf_id: u32,
    /// The BTF object that contains that id. `None` is vmlinux.
    pub attach_btf: Option<BorrowedFd<'a>>,
    /// Our own BTF, to which the next two fields refer.
    pub btf: Option<BorrowedFd<'a>>,
    /// The functions.
    pub funcs: &'a [FuncInfo],
    /// The source lines.
    pub lines: &'a [LineInfo],
    /// `BPF_F_*` flags of the load.
    pub flags: u32,
    /// Log level: 0 none, 1 the failing path, 2 all paths.
    pub log_level: u32,
}

impl<'a> ProgSpec<'a> {
    /// A program without BTF.
    pub fn new(kind: ProgKind, name: &'a str, insns: &'a [Insn]) -> ProgSpec<'a> {
        ProgSpec {
            kind,
            name,
            insns,
            attach: AttachType::None,
            attach_btf_id: 0,
            attach_btf: None,
            btf: None,
            funcs: &[],
            lines: &[],
            flags: 0,
            log_level: 0,
        }
    }
}

#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    name: [u8; 16],
    ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
    attach_btf_obj_fd: u32,
    core_relo_cnt: u32,
    fd_array: u64,
    core_relos: u64,
    core_relo_rec_size: u32,
    log_true_size: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestAttr {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    pad: u32,
}

/// The kernel's description of a program (`struct bpf_prog_info`).
#[allow(missing_docs)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgInfo {
    pub kind: u32,
    pub id: u32,
    pub tag: [u8; 8],
    pub jited_len: u32,
    pub xlated_len: u32,
    jited_insns: u64,
    xlated_insns: u64,
    /// Load time in nanoseconds since boot.
    pub load_time: u64,
    pub created_by_uid: u32,
    pub nr_map_ids: u32,
    map_ids: u64,
    name: [u8; 16],
    ifindex: u32,
    gpl_compatible: u32,
    netns_dev: u64,
    netns_ino: u64,
    nr_jited_ksyms: u32,
    nr_jited_func_lens: u32,
    jited_ksyms: u64,
    jited_func_lens: u64,
    pub btf_id: u32,
    func_info_rec_size: u32,
    func_info: u64,
    nr_func_info: u32,
    nr_line_info: u32,
    line_info: u64,
    jited_line_info: u64,
    nr_jited_line_info: u32,
    line_info_rec_size: u32,
    jited_line_info_rec_size: u32,
    nr_prog_tags: u32,
    prog_tags: u64,
    /// Zero unless run statistics are enabled.
    pub run_time_ns: u64,
    /// Zero unless run statistics are enabled.
    pub run_cnt: u64,
    /// Firings that the kernel suppressed because the program (or another on this CPU) was already
    /// running. Always counted.
    pub recursion_misses: u64,
    /// Instructions that the verifier processed.
    pub verified_insns: u32,
    pub attach_btf_obj_id: u32,
    pub attach_btf_id: u32,
    pad: u32,
}

impl ProgInfo {
    /// The program's name.
    pub fn name(&self) -> String {
        name_text(&self.name)
    }
}

/// A load that failed.
#[derive(Clone, Debug)]
pub struct LoadFailure {
    /// The attempt and the errno.
    pub error: SysError,
    /// The verifier's log, empty when the verifier did not run.
    pub log: String,
}

/// A loaded program, closed on drop. The kernel keeps the program while a link uses it.
#[derive(Debug)]
pub struct Prog {
    fd: KernelFd,
    name: String,
    kind: ProgKind,
    attach: AttachType,
}

/// The license that all our programs declare. GPL-only helpers (checked reads among them) require
/// it.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";
const FIRST_LOG: usize = 64 << 10;
/// The kernel rejects log buffers from `UINT_MAX >> 2` on. A longer log than this is of no use.
const LAST_LOG: usize = 32 << 20;

impl Prog {
    /// Loads a program. A log slows the load down, so `log_level` is usually 0. When the load
    /// fails, it is repeated with a log, so that the failure can be explained.
    pub fn load(spec: &ProgSpec<'_>) -> Result<Prog, Box<LoadFailure>> {
        Prog::load_logged(spec).map(|(prog, _)| prog)
    }

    /// Like [`Prog::load`], with the log (empty at level 0).
    pub fn load_logged(spec: &ProgSpec<'_>) -> Result<(Prog, String), Box<LoadFailure>> {
        let mut log = String::new();
        let mut result = if spec.log_level == 0 {
            try_load(spec, 0, &mut [])
        } else {
            load_with_log(spec, spec.log_level, &mut log)
        };
        if let Err((errno, _)) = result
            && spec.log_level == 0
            && explains(errno)
        {
            // When the verifier reaches its limits, its last steps explain nothing, and there are a
            // million of them.
            let level = if matches!(errno, libc::E2BIG | libc::EFAULT) { LOG_STATISTICS } else { 1 };
            // The repeated load may succeed, for example after a shortage of memory.
            result = load_with_log(spec, level, &mut log);
        }
        match result {
            Ok(fd) => {
                let prog = Prog { fd, name: spec.name.to_owned(), kind: spec.kind, attach: spec.attach };
                Ok((prog, log))
            }
            Err((errno, _)) => {
                let mut error = SysError::new(format!("load program \"{}\"", spec.name), errno);
                if !log.is_empty() {
                    error.hint = None;
                }
                Err(Box::new(LoadFailure { error, log }))
            }
        }
    }

    /// The program's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program's kind.
    pub fn kind(&self) -> ProgKind {
        self.kind
    }

    /// The attach type.
    pub fn attach_type(&self) -> AttachType {
        self.attach
    }

    /// Runs a raw-tracepoint program once with these arguments, on this CPU or on `cpu`. Returns
    /// its R0. There must be as many arguments as the program reads, at most 12.
    pub fn test_run(&self, args: &[u64], cpu: Option<u32>) -> Result<u32, SysError> {
        const ON_CPU: u32 = 1;
        let mut attr = TestAttr {
            prog_fd: raw(&self.fd),
            ctx_size_in: std::mem::size_of_val(args) as u32,
            ctx_in: addr(args),
            flags: if cpu.is_some() { ON_CPU } else { 0 },
            cpu: cpu.unwrap_or(0),
            ..TestAttr::default()
        };
        // SAFETY: the kernel reads `ctx_size_in` bytes of `args`, and writes only the attribute.
        unsafe { bpf(Cmd::TestRun, &mut attr) }
            .map(|_| attr.retval)
            .map_err(|errno| SysError::new(format!("run program \"{}\"", self.name), errno))
    }

    /// The kernel's description of the program.
    pub fn info(&self) -> Result<ProgInfo, SysError> {
        info_by_fd(&self.fd).map_err(|errno| SysError::new(format!("query program \"{}\"", self.name), errno))
    }
}

impl AsFd for Prog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Prog {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Whether a log can say more than the errno. It cannot when a missing privilege kept the call from
/// the verifier.
fn explains(errno: i32) -> bool {
    !matches!(errno, libc::EPERM | libc::EMFILE | libc::ENFILE | libc::ENOSYS)
}

/// The log level for messages and statistics without steps (`BPF_LOG_STATS`).
const LOG_STATISTICS: u32 = 4;

/// One load. On failure, the errno and the log's full size, where the kernel (6.4) reports it.
fn try_load(spec: &ProgSpec<'_>, level: u32, log: &mut [u8]) -> Result<KernelFd, (i32, usize)> {
    let mut attr = LoadAttr {
        prog_type: spec.kind as u32,
        insn_cnt: spec.insns.len() as u32,
        insns: addr(spec.insns),
        license: addr(LICENSE),
        log_level: level,
        log_size: log.len() as u32,
        log_buf: addr_mut(log),
        prog_flags: spec.flags,
        name: object_name(spec.name),
        expected_attach_type: spec.attach as u32,
        attach_btf_id: spec.attach_btf_id,
        attach_btf_obj_fd: spec.attach_btf.map_or(0, |fd| raw(&fd)),
        ..LoadAttr::default()
    };
    if let Some(btf) = spec.btf {
        attr.prog_btf_fd = raw(&btf);
        attr.func_info_rec_size = std::mem::size_of::<FuncInfo>() as u32;
        attr.func_info = addr(spec.funcs);
        attr.func_info_cnt = spec.funcs.len() as u32;
        attr.line_info_rec_size = std::mem::size_of::<LineInfo>() as u32;
        attr.line_info = addr(spec.lines);
        attr.line_info_cnt = spec.lines.len() as u32;
    }
    // SAFETY: every address is of a slice that outlives the call, with its length. The kernel
    // writes only to the log, within `log_size`, and to the attribute.
    unsafe { bpf_fd(Cmd::ProgLoad, &mut attr) }.map_err(|errno| (errno, attr.log_true_size as usize))
}

/// Loads with a log, in ever larger buffers until the log fits.
fn load_with_log(spec: &ProgSpec<'_>, level: u32, text: &mut String) -> Result<KernelFd, (i32, usize)> {
    let mut capacity = FIRST_LOG;
    loop {
        let mut buffer = vec![0u8; capacity];
        let result = try_load(spec, level, &mut buffer);
        if let Err((libc::ENOSPC, needed)) = result
            && capacity < LAST_LOG
        {
            capacity = (capacity * 4).max(needed + 1).min(LAST_LOG);
            continue;
        }
        *text = String::from_utf8_lossy(until_nul(&buffer)).into_owned();
        return result;
    }
}
