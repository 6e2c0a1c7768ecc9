//! The provider kvm, with a machine whose one processor does nothing but output.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{is_guest, no_argument_types};
use crate::tool::{dtrace, workload};

tests! {
    a_virtual_processor_enters_and_exits_with_its_number_and_reason
    the_kernels_stack_of_a_sample_in_a_guest_is_one_frame
    what_a_machine_makes_the_kernel_do_is_counted_with_its_values
    registers_of_a_machine_are_those_that_its_processor_has
}

const KVM_CREATE_VM: u64 = 0xae01;
const KVM_GET_VCPU_MMAP_SIZE: u64 = 0xae04;
const KVM_CREATE_VCPU: u64 = 0xae41;
const KVM_SET_USER_MEMORY_REGION: u64 = 0x4020_ae46;
const KVM_RUN: u64 = 0xae80;
const KVM_SET_REGS: u64 = 0x4090_ae82;
const KVM_GET_SREGS: u64 = 0x8138_ae83;
const KVM_SET_SREGS: u64 = 0x4138_ae84;

const KVM_INTERRUPT: u64 = 0x4004_ae86;

/// Where the machine has its table of interrupts, the one that it gets, and what it reads.
const TABLE: u16 = 0x1100;
const INTERRUPT: u32 = 0x20;
const ANSWER: u8 = 0x5a;

/// The number of the processor.
const VCPU: u64 = 3;

/// `ioctl` with an argument that the request needs.
fn control(file: &File, request: u64, argument: u64) -> std::io::Result<i32> {
    // SAFETY: the callers pass numbers, and addresses of structs of theirs.
    match unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument) } {
        -1 => Err(std::io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// Runs a machine until it has output so many bytes. Prints how many, or why it cannot.
pub(crate) fn machine(count: u32) {
    // again: out %al, $0x10; jmp again
    show(count, &[0xe6, 0x10, 0xeb, 0xfc]);
}

/// The same machine, which counts to 65,535 before each output.
pub(crate) fn busy_machine(count: u32) {
    // again: mov $0xffff, %cx; loop .; out %al, $0x10; jmp again
    show(count, &[0xb9, 0xff, 0xff, 0xe2, 0xfe, 0xe6, 0x10, 0xeb, 0xf7]);
}

/// A machine that outputs, inputs, writes and reads a byte where it has no memory, and is
/// interrupted, so many times each.
pub(crate) fn lively_machine(count: u32) {
    // mov $0x1234, %bx; again: out %al, $0x10; in $0x11, %al; mov %al, 0x5000; mov 0x5000, %al;
    // jmp again
    let code = [0xbb, 0x34, 0x12, 0xe6, 0x10, 0xe4, 0x11, 0xa2, 0, 0x50, 0xa0, 0, 0x50, 0xeb, 0xf4];
    show(4 * count, &code);
}

fn show(count: u32, code: &[u8]) {
    match stops(count, code) {
        Ok(done) => println!("stops {done}"),
        Err(e) => println!("skip {e}"),
    }
}

/// Runs a machine with this code at 0x1000 until it has stopped so often for its program to act.
fn stops(count: u32, code: &[u8]) -> std::io::Result<u32> {
    // SAFETY: the kernel has just given the descriptor.
    let made = |fd: i32| unsafe { File::from_raw_fd(fd) };
    let kvm = File::options().read(true).write(true).open("/dev/kvm")?;
    let vm = made(control(&kvm, KVM_CREATE_VM, 0)?);
    let shared = libc::MAP_SHARED;
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new memory.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), 4096, rw, shared | libc::MAP_ANONYMOUS, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // What an interrupt finds: the address of its handler, which is iret.
    let [mut page, handler] = [vec![0_u8; 4096], 0x1200_u16.to_le_bytes().to_vec()];
    page[..code.len()].copy_from_slice(code);
    let entry = usize::from(TABLE) - 0x1000 + 4 * INTERRUPT as usize;
    page[entry..entry + 2].copy_from_slice(&handler);
    page[0x200] = 0xcf;
    // SAFETY: a page of ours.
    unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), memory.cast(), page.len()) };
    // slot and flags, address in the machine, size, address here
    let region: [u64; 4] = [0, 0x1000, 4096, memory as u64];
    control(&vm, KVM_SET_USER_MEMORY_REGION, region.as_ptr() as u64)?;
    let vcpu = made(control(&vm, KVM_CREATE_VCPU, VCPU)?);
    let size = control(&kvm, KVM_GET_VCPU_MMAP_SIZE, 0)? as usize;
    // SAFETY: what the kernel shares of the processor.
    let run = unsafe { libc::mmap(std::ptr::null_mut(), size, rw, shared, vcpu.as_raw_fd(), 0) };
    if run == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // The segments; the first member is the base of the code segment, its selector is at byte 12.
    let mut segments = [0_u64; 0x138 / 8];
    control(&vcpu, KVM_GET_SREGS, segments.as_mut_ptr() as u64)?;
    segments[0] = 0;
    segments[1] &= !(0xffff << 32);
    // Behind eight segments of 24 bytes and the table of these: the table of interrupts.
    (segments[26], segments[27]) = (TABLE.into(), 0x3ff);
    control(&vcpu, KVM_SET_SREGS, segments.as_ptr() as u64)?;
    // Sixteen registers (the seventh is that of the stack), the address of the next instruction, the
    // flags: it may be interrupted.
    let mut registers = [0_u64; 0x90 / 8];
    (registers[6], registers[16], registers[17]) = (0x1f00, 0x1000, 0x202);
    control(&vcpu, KVM_SET_REGS, registers.as_ptr() as u64)?;
    let interrupts = code[0] == 0xbb;
    let mut done = 0;
    while done < count {
        if interrupts && done % 4 == 0 {
            control(&vcpu, KVM_INTERRUPT, std::ptr::from_ref(&INTERRUPT) as u64)?;
        }
        match control(&vcpu, KVM_RUN, 0) {
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        // SAFETY: the reason is at byte 8.
        let reason = unsafe { run.cast::<u32>().add(2).read_volatile() };
        // SAFETY: of I/O, where its data is; of memory without any, its data and whether it writes.
        unsafe {
            match reason {
                2 => run
                    .cast::<u8>()
                    .add(run.cast::<u64>().add(5).read_volatile() as usize)
                    .write_volatile(ANSWER),
                6 => run.cast::<u8>().add(40).write_volatile(ANSWER),
                _ => return Err(std::io::Error::other(format!("the machine stops with reason {reason}"))),
            }
        }
        done += 1;
    }
    Ok(done)
}

/// The kernel's modules, in a guest that has them.
struct Module;

impl Module {
    fn load() -> Module {
        let _ = crate::blocks::run("modprobe kvm_amd || modprobe kvm_intel");
        Module
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = crate::blocks::run("rmmod kvm_amd; rmmod kvm_intel; rmmod kvm");
    }
}

fn a_virtual_processor_enters_and_exits_with_its_number_and_reason() -> Verdict {
    if let Some(skip) = no_argument_types() {
        return skip;
    }
    let _module = is_guest().then(Module::load);
    let o = dtrace(&["-ln", "kvm:::entry"]);
    if o.code != Some(0) {
        return Skip("this kernel has no rawtp:kvm::kvm_entry".into());
    }
    // Reasons of an output: those of Intel and AMD.
    let script = "
        kvm:::entry /pid == $target/ { @[probename, args[0]->vcpu_id, args[0]->vcpu_pid == pid && args[0]->vcpu_count == 1] = count(); }
        kvm:::exit /pid == $target/ { @[probename, args[0], 1] = count(); }
        kvm:::exit /pid == $target && args[3] == (args[1] == 30 ? KVM_ISA_VMX : KVM_ISA_SVM) && (args[1] == 30 || args[1] == 0x7b)/
        { @[\"output\", args[0], args[2] == 0x1000 || args[2] == 0x1002] = count(); }
        kvm:::userspace-exit /pid == $target/ { @[probename, args[0], args[1]] = count(); }
        kvm:::exit /pid == $target && args[3] > KVM_ISA_SVM/ { @[\"other\", 0, 0] = count(); }
        rawtp:kvm::kvm_entry /pid == $target/ { @base = count(); }
        END { printa(\"%s %d %d %@d\\n\", @); printa(\"base %@d\\n\", @base); }";
    let o = dtrace(&["-q", "-c", &workload("machine", 200), "-n", script]).code(0);
    if let Some(why) = o.out.lines().find_map(|l| l.strip_prefix("skip ")) {
        return Skip(format!("no virtual machine can run: {why}"));
    }
    assert!(o.out.contains("stops 200\n"), "{o:?}");
    assert!(o.out.contains("userspace-exit 2 0 200\n"), "{o:?}");
    let count = |words: &str| -> i64 {
        let row = o.out.lines().find_map(|l| l.strip_prefix(words)?.strip_prefix(' '));
        row.map_or(0, |n| n.parse().unwrap())
    };
    assert_eq!(count("entry 3 1"), count("base"), "{o:?}");
    assert_eq!(count("entry 3 1"), count("exit 3 1"), "{o:?}");
    // A kernel that runs machines without the processor's help interprets these instructions.
    if count("base") > 0 && count("other 0 0") == 0 {
        assert_eq!(count("output 3 1"), 200, "{o:?}");
    }
    Pass
}

fn the_kernels_stack_of_a_sample_in_a_guest_is_one_frame() -> Verdict {
    if let Some(skip) = no_argument_types() {
        return skip;
    }
    let _module = is_guest().then(Module::load);
    // PF_VCPU: the thread runs its machine, or was interrupted in it.
    let script =
        "profile-997 /pid == $target && (curthread->flags & 1)/ { @[stack()] = count(); @all = count(); }
        END { printa(\"all %@d\\n\", @all); }";
    for way in ["auto", "helper"] {
        let option = format!("kstackwalk={way}");
        let o = dtrace(&["-q", "-x", &option, "-c", &workload("busy-machine", 100), "-n", script]).code(0);
        if let Some(why) = o.out.lines().find_map(|l| l.strip_prefix("skip ")) {
            return Skip(format!("no virtual machine can run: {why}"));
        }
        assert!(o.out.contains("stops 100\n"), "{o:?}");
        let Some(all) = o.out.lines().find_map(|l| l.strip_prefix("all ")).filter(|all| *all != "0") else {
            return Skip("no clock interrupted the machine: this kernel interprets its instructions".into());
        };
        let lines: Vec<&str> = o.out.lines().map(str::trim).collect();
        let frame = lines.iter().position(|l| *l == "[guest]").unwrap_or_else(|| panic!("{way}: {o:?}"));
        assert_eq!(lines[frame + 1], all, "{way}: {o:?}");
    }
    Pass
}

/// Runs a script on a machine. An error says why that is not possible here.
fn of_machine(name: &str, count: u32, stops: u32, script: &str) -> Result<String, Verdict> {
    if let Some(skip) = no_argument_types() {
        return Err(skip);
    }
    if dtrace(&["-ln", "kvm:::entry"]).code != Some(0) {
        return Err(Skip("this kernel has no rawtp:kvm::kvm_entry".into()));
    }
    let o = dtrace(&["-q", "-c", &workload(name, count), "-n", script]).code(0);
    if let Some(why) = o.out.lines().find_map(|l| l.strip_prefix("skip ")) {
        return Err(Skip(format!("no virtual machine can run: {why}")));
    }
    assert!(o.out.contains(&format!("stops {stops}\n")), "{o:?}");
    // An emulated machine suppresses firings of the clock.
    assert!(o.err.lines().all(|line| line.contains(" suppressed by the kernel")), "{o:?}");
    Ok(o.out)
}

fn what_a_machine_makes_the_kernel_do_is_counted_with_its_values() -> Verdict {
    let _module = is_guest().then(Module::load);
    let script = "
        kvm:::pio-write /pid == $target && args[0] == 0x10 && args[1] == 1 && args[2] == 1/ { @[probename] = count(); }
        kvm:::pio-read /pid == $target && args[0] == 0x11 && args[1] == 1/ { @[probename] = count(); }
        kvm:::mmio-write /pid == $target && args[0] == 0x5000 && args[1] == 1 && args[2] == 0x5a/ { @[probename] = count(); }
        kvm:::mmio-read /pid == $target && args[0] == 0x5000 && args[1] == 1 && args[2] == 0x5a/ { @[probename] = count(); }
        kvm:::inject-interrupt /pid == $target && args[0] == 0x20/ { @[probename] = count(); }
        kvm:::page-fault /pid == $target && args[0] == 3 && args[1] >> 12 == 1/ { @code = count(); }
        kvm:::exit /pid == $target/ { this->name = kvm_exit_name[args[3], args[1]]; }
        kvm:::exit /pid == $target && (this->name == \"ioio\" || this->name == \"io_instruction\")/ { @[\"io\"] = count(); }
        kvm:::exit /pid == $target/ { @[\"exits\"] = count(); }
        kvm:::exit /pid == $target && this->name != \"<unknown>\"/ { @[\"known\"] = count(); }
        END { printa(\"%s %@d\\n\", @); printa(\"code %@d\\n\", @code); }";
    let out = match of_machine("lively-machine", 50, 200, script) {
        Ok(out) => out,
        Err(skip) => return skip,
    };
    let count = |words: &str| -> i64 {
        let row = out.lines().find_map(|l| l.strip_prefix(words)?.strip_prefix(' '));
        row.map_or(0, |n| n.parse().unwrap())
    };
    if count("exits") == 0 {
        return Skip("this kernel interprets the instructions of a machine".into());
    }
    for probe in ["pio-write", "pio-read", "mmio-write"] {
        assert_eq!(count(probe), 50, "{probe}: {out}");
    }
    // The machine does not go on with the last answer.
    assert_eq!(count("mmio-read"), 49, "{out}");
    assert_eq!((count("io"), count("known")), (100, count("exits")), "{out}");
    assert!(count("code") >= 1, "{out}");
    // One that is interrupted, by a fault or by the host, is given again: 200 exits are its own.
    let others = count("exits") - 200;
    assert!((50..=50 + others).contains(&count("inject-interrupt")), "{out}");
    Pass
}

// row builtin.vmregs
fn registers_of_a_machine_are_those_that_its_processor_has() -> Verdict {
    let _module = is_guest().then(Module::load);
    // It runs in real mode without pages. RBX has its value behind the first instruction.
    let script = "
        kvm:::exit /pid == $target && vmregs[R_RIP] == args[2] && vmregs[VMX_GUEST_RIP] == args[2]/ { @[\"rip\"] = count(); }
        kvm:::exit /pid == $target && args[2] > 0x1002 && args[2] < 0x1100/ { @[\"later\"] = count(); }
        kvm:::exit /pid == $target && args[2] > 0x1002 && args[2] < 0x1100 && vmregs[R_RBX] == 0x1234 && vmregs[R_RCX] == 0/ { @[\"rbx\"] = count(); }
        kvm:::exit /pid == $target && vmregs[R_RSP] <= 0x1f00 && vmregs[R_RSP] >= 0x1ef0/ { @[\"rsp\"] = count(); }
        kvm:::exit /pid == $target && !(vmregs[VMX_GUEST_CR0] & 0x80000001) && !vmregs[VMX_GUEST_CR3]/ { @[\"real\"] = count(); }
        kvm:::exit /pid == $target && (vmregs[R_RFL] & 2)/ { @[\"flags\"] = count(); }
        kvm:::exit /pid == $target && guestname == \"<unknown>\"/ { @[\"name\"] = count(); }
        kvm:::exit /pid == $target/ { @[\"exits\"] = count(); isa = args[3]; }
        END { printa(\"%s %@d\\n\", @); printf(\"isa %d\\n\", isa); }";
    let out = match of_machine("lively-machine", 50, 200, script) {
        Ok(out) => out,
        Err(skip) => return skip,
    };
    let count = |words: &str| -> i64 {
        let row = out.lines().find_map(|l| l.strip_prefix(words)?.strip_prefix(' '));
        row.map_or(0, |n| n.parse().unwrap())
    };
    // KVM_ISA_SVM: the others keep registers to themselves.
    if count("isa") != 2 {
        return Skip("the processor is not of AMD".into());
    }
    let exits = count("exits");
    assert!(exits >= 200, "{out}");
    for what in ["rip", "rsp", "real", "flags", "name"] {
        assert_eq!(count(what), exits, "{what}: {out}");
    }
    assert_eq!(count("rbx"), count("later"), "{out}");
    // Samples of the clock: wherever it interrupts the machine, the instruction is one of its own.
    let script = "
        profile-997 /pid == $target && (curthread->flags & 1)/ { @[\"samples\"] = count(); }
        profile-997 /pid == $target && (curthread->flags & 1) && vmregs[R_RIP] >= 0x1000 && vmregs[R_RIP] < 0x100a/ { @[\"own\"] = count(); }
        END { printa(\"%s %@d\\n\", @); }";
    let out = match of_machine("busy-machine", 100, 100, script) {
        Ok(out) => out,
        Err(skip) => return skip,
    };
    let rows: Vec<&str> = out
        .lines()
        .filter_map(|l| l.split_once(' ').filter(|(w, _)| *w != "stops").map(|(_, n)| n))
        .collect();
    assert!(rows.len() == 2 && rows[0] == rows[1], "{out}");
    // No processor of a machine is in this thread.
    let o = dtrace(&["-qn", "BEGIN { trace(vmregs[R_RIP]); } BEGIN { exit(0); } ERROR { exit(5); }"]).code(5);
    assert!(o.err.contains("invalid address"), "{o:?}");
    Pass
}
