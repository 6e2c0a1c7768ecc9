//! Builds ELF executables. A test that needs one with a certain symbol table or debug link needs no
//! compiler.

/// The contents of an executable. Its text section is at address [`TEXT`] and file offset 0x1000.
#[derive(Clone, Debug, Default)]
pub struct Elf {
    /// Machine code. The entry point is its start.
    pub code: Vec<u8>,
    /// Symbols: name, offset from the start of the text, size, `st_info`.
    pub symbols: Vec<(String, u64, u64, u8)>,
    /// Name and checksum of a debug file.
    pub debug_link: Option<(Vec<u8>, u32)>,
    /// The build id.
    pub build_id: Option<Vec<u8>>,
}

/// Address of the text.
pub const TEXT: u64 = 0x40_1000;

/// `st_info` of a global function.
pub const GLOBAL_FUNCTION: u8 = 0x12;

struct Section {
    name: &'static str,
    kind: u32,
    data: Vec<u8>,
    link: u32,
    entry: u64,
}

impl Elf {
    /// Builds the file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut sections = Vec::new();
        let plain = |name, kind, data| Section { name, kind, data, link: 0, entry: 0 };
        if !self.symbols.is_empty() {
            let (mut table, mut names) = (vec![0; 24], vec![0]);
            for (name, offset, size, info) in &self.symbols {
                table.extend((names.len() as u32).to_le_bytes());
                // Default visibility, in section 1.
                table.extend([*info, 0, 1, 0]);
                table.extend((TEXT + offset).to_le_bytes());
                table.extend(size.to_le_bytes());
                names.extend(name.as_bytes());
                names.push(0);
            }
            let link = sections.len() as u32 + 3;
            sections.push(Section { name: ".symtab", kind: 2, data: table, link, entry: 24 });
            sections.push(plain(".strtab", 3, names));
        }
        if let Some((name, sum)) = &self.debug_link {
            let mut data = name.clone();
            data.push(0);
            data.resize(data.len().next_multiple_of(4), 0);
            data.extend(sum.to_le_bytes());
            sections.push(plain(".gnu_debuglink", 1, data));
        }
        if let Some(id) = &self.build_id {
            let mut data = [4, id.len() as u32, 3].map(u32::to_le_bytes).concat();
            data.extend(b"GNU\0");
            data.extend(id);
            data.resize(data.len().next_multiple_of(4), 0);
            sections.push(plain(".note.gnu.build-id", 7, data));
        }
        let mut names = b"\0.text\0.shstrtab\0".to_vec();
        let mut file = vec![0; 0x1000];
        file.extend(&self.code);
        let mut headers = vec![[0; 64].to_vec(), header(1, 1, TEXT, 0x1000, self.code.len(), 0, 0)];
        for s in &sections {
            file.resize(file.len().next_multiple_of(8), 0);
            headers.push(header(names.len(), s.kind, 0, file.len(), s.data.len(), s.link, s.entry));
            names.extend(s.name.as_bytes());
            names.push(0);
            file.extend(&s.data);
        }
        let at = file.len();
        file.extend(&names);
        headers.push(header(7, 3, 0, at, names.len(), 0, 0));
        file.resize(file.len().next_multiple_of(8), 0);
        let at = file.len() as u64;
        let count = headers.len() as u16;
        file.extend(headers.concat());
        // The file header: an executable for this machine, with one segment.
        let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
        head.extend([TEXT, 64, at].map(u64::to_le_bytes).concat());
        head.extend(0u32.to_le_bytes());
        head.extend([64, 56, 1, 64, count, count - 1].map(u16::to_le_bytes).concat());
        // Readable and executable, page aligned.
        head.extend([1, 5].map(u32::to_le_bytes).concat());
        let length = self.code.len() as u64;
        head.extend([0x1000, TEXT, TEXT, length, length, 0x1000].map(u64::to_le_bytes).concat());
        file[..head.len()].copy_from_slice(&head);
        file
    }
}

/// The checksum of a debug file: CRC-32 as in Ethernet.
pub fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

fn header(name: usize, kind: u32, addr: u64, at: usize, size: usize, link: u32, entry: u64) -> Vec<u8> {
    // Allocated and executable, for the text.
    let flags = if addr != 0 { 6 } else { 0 };
    let mut h = [name as u32, kind].map(u32::to_le_bytes).concat();
    h.extend([flags, addr, at as u64, size as u64].map(u64::to_le_bytes).concat());
    h.extend([link, 0].map(u32::to_le_bytes).concat());
    h.extend([1, entry].map(u64::to_le_bytes).concat());
    h
}

/// Code that reads a byte from standard input (or its end), calls getppid `count` times, and exits
/// with 0. The return address of the call is [`TEXT`] + [`AFTER_CALL`].
pub fn calls(count: u32) -> Vec<u8> {
    [READ, &body(count)].concat()
}

/// Like [`calls`], but executes the program that is its first argument, with the other arguments,
/// before it would exit.
pub fn calls_and_executes(count: u32) -> Vec<u8> {
    let body = body(count);
    let (calls, exit) = body.split_at(body.len() - EXIT.len());
    // execve(argv[1], &argv[1], NULL)
    let execute = b"\x48\x8b\x7c\x24\x10\x48\x8d\x74\x24\x10\x31\xd2\xb8\x3b\0\0\0\x0f\x05";
    [READ, calls, execute, exit].concat()
}

/// Like [`calls`], but the code that makes the calls is copied to anonymous memory at
/// [`JIT_ADDRESS`], as a JIT compiler does. The return address of the call is [`JIT_ADDRESS`] +
/// [`AFTER_CALL_IN_BODY`].
pub fn calls_from_jit_code(count: u32) -> Vec<u8> {
    let body = body(count);
    // mmap(JIT_ADDRESS, 4096, read write execute, private fixed anonymous, -1, 0)
    let mut code = READ.to_vec();
    code.extend(b"\xb8\x09\0\0\0\xbf\0\0\0\x10\xbe\0\x10\0\0\xba\x07\0\0\0\x41\xba\x32\0\0\0");
    code.extend(b"\x41\xb8\xff\xff\xff\xff\x45\x31\xc9\x0f\x05");
    // Copies the body after this code to that memory and jumps to it.
    code.extend(b"\x48\x8d\x35\x13\0\0\0\xbf\0\0\0\x10\xb9");
    code.extend((body.len() as u32).to_le_bytes());
    code.extend(b"\xf3\xa4\xb8\0\0\0\x10\xff\xe0");
    code.extend(body);
    code
}

/// The address to which [`calls_from_jit_code`] copies its code.
pub const JIT_ADDRESS: u64 = 0x1000_0000;
/// Offset of the return address of the call in the text.
pub const AFTER_CALL: u64 = READ.len() as u64 + AFTER_CALL_IN_BODY;
/// Offset of the return address in the copied code.
pub const AFTER_CALL_IN_BODY: u64 = 12;

/// read(0, stack, 1)
const READ: &[u8] = b"\x31\xc0\x31\xff\x48\x8d\x74\x24\x80\xba\x01\0\0\0\x0f\x05";

/// exit(0)
const EXIT: &[u8] = b"\xb8\x3c\0\0\0\x31\xff\x0f\x05";

/// `count` calls of getppid, then exit(0).
fn body(count: u32) -> Vec<u8> {
    let mut code = vec![0xbb];
    code.extend(count.to_le_bytes());
    code.extend(b"\xb8\x6e\0\0\0\x0f\x05\xff\xcb\x75\xf5");
    code.extend(EXIT);
    code
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};

    #[test]
    fn built_executables_run() {
        let path = std::env::temp_dir().join(format!("testing-elf-{}", std::process::id()));
        for code in [calls(3), calls_from_jit_code(3)] {
            let symbols = vec![("main".into(), 0, 8, GLOBAL_FUNCTION)];
            let elf = Elf { code, symbols, debug_link: Some((b"x".into(), 1)), build_id: Some(vec![1; 20]) };
            std::fs::write(&path, elf.bytes()).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let mut child = crate::start_written(Command::new(&path).stdin(Stdio::null())).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(0));
        }
        std::fs::remove_file(path).unwrap();
    }
}
