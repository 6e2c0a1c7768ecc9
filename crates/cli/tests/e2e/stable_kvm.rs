//! The provider kvm, with a machine whose one processor does nothing but output.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use crate::Verdict::{self, Pass, Skip};
use crate::machine::{is_guest, no_argument_types};
use crate::tool::{dtrace, workload};

tests! {
    a_virtual_processor_enters_and_exits_with_its_number_and_reason
    the_kernels_stack_of_a_sample_in_a_guest_is_one_frame
}

const KVM_CREATE_VM: u64 = 0xae01;
const KVM_GET_VCPU_MMAP_SIZE: u64 = 0xae04;
const KVM_CREATE_VCPU: u64 = 0xae41;
const KVM_SET_USER_MEMORY_REGION: u64 = 0x4020_ae46;
const KVM_RUN: u64 = 0xae80;
const KVM_SET_REGS: u64 = 0x4090_ae82;
const KVM_GET_SREGS: u64 = 0x8138_ae83;
const KVM_SET_SREGS: u64 = 0x4138_ae84;

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

fn show(count: u32, code: &[u8]) {
    match output(count, code) {
        Ok(done) => println!("outputs {done}"),
        Err(e) => println!("skip {e}"),
    }
}

fn output(count: u32, code: &[u8]) -> std::io::Result<u32> {
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
    // SAFETY: a page of ours, which is longer.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), memory.cast(), code.len()) };
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
    control(&vcpu, KVM_SET_SREGS, segments.as_ptr() as u64)?;
    // Sixteen registers, the address of the next instruction, the flags.
    let mut registers = [0_u64; 0x90 / 8];
    (registers[16], registers[17]) = (0x1000, 2);
    control(&vcpu, KVM_SET_REGS, registers.as_ptr() as u64)?;
    let mut done = 0;
    while done < count {
        match control(&vcpu, KVM_RUN, 0) {
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        // SAFETY: the reason is at byte 8.
        let reason = unsafe { run.cast::<u32>().add(2).read_volatile() };
        if reason != 2 {
            return Err(std::io::Error::other(format!("the machine stops with reason {reason}")));
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
    assert!(o.out.contains("outputs 200\n"), "{o:?}");
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
        assert!(o.out.contains("outputs 100\n"), "{o:?}");
        let Some(all) = o.out.lines().find_map(|l| l.strip_prefix("all ")).filter(|all| *all != "0") else {
            return Skip("no clock interrupted the machine: this kernel interprets its instructions".into());
        };
        let lines: Vec<&str> = o.out.lines().map(str::trim).collect();
        let frame = lines.iter().position(|l| *l == "[guest]").unwrap_or_else(|| panic!("{way}: {o:?}"));
        assert_eq!(lines[frame + 1], all, "{way}: {o:?}");
    }
    Pass
}
