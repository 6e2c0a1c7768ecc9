//! A part of a blob: the types that somebody has looked at.
//!
//! ```text
//!  before   1 int   2 struct a   3 struct b   4 * b   5 struct c        looked at: 1, 2, 4
//!  after    1 int   2 struct a   3 -          4 * b   5 -
//! ```
//!
//! Ids stay as they are, so a module's types, which count on from the kernel's, need no change, and
//! whoever has an id of the whole blob may use it with the part. What nobody has looked at becomes
//! a forward declaration without a name: the shortest type, which no lookup finds; a hundred
//! thousand of them are deflated to nearly nothing.

use std::collections::HashMap;

use super::asked::Ids;
use super::blob::{Btf, BtfKind};
use super::synth;

/// The strings of the new blob.
struct Strings {
    first: u32,
    bytes: Vec<u8>,
    known: HashMap<Vec<u8>, u32>,
}

impl Strings {
    fn new(first: u32) -> Strings {
        // A blob that others extend begins with the empty string, at 0. That of a module is the
        // kernel's.
        let bytes = if first == 0 { vec![0] } else { Vec::new() };
        Strings { first, bytes, known: HashMap::new() }
    }

    /// The offset of a string of the old blob.
    fn add(&mut self, old: &Btf, offset: u32) -> u32 {
        let tail = old.string_tail(offset).unwrap_or_default();
        let text = tail.split(|b| *b == 0).next().unwrap_or_default();
        if text.is_empty() {
            return 0;
        }
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        let new = self.first + self.bytes.len() as u32;
        self.bytes.extend_from_slice(text);
        self.bytes.push(0);
        self.known.insert(text.to_vec(), new);
        new
    }
}

/// The words of each entry of a type, if the first word of an entry is a name.
fn named_entries(kind: BtfKind) -> Option<usize> {
    match kind {
        BtfKind::Struct | BtfKind::Union | BtfKind::Enum64 => Some(3),
        BtfKind::Enum | BtfKind::FuncProto => Some(2),
        _ => None,
    }
}

impl Btf {
    /// The same blob, which notes the types that are looked at.
    pub(super) fn watched(mut self) -> Btf {
        self.asked = Some(Ids::new(self.offsets.len()));
        self
    }

    /// True if a type of its own was looked at.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| !asked.is_empty())
    }

    /// A blob with the types that were looked at, and the end of its strings. Its own strings begin
    /// at `first_string`: where those of the blob that it extends end.
    pub(super) fn of_asked(&self, first_string: u32) -> (Vec<u8>, u32) {
        let mut strings = Strings::new(first_string);
        let mut types: Vec<u8> = Vec::new();
        let mut put = |word: u32| types.extend_from_slice(&word.to_ne_bytes());
        for (id, raw) in self.local_types() {
            let index = (id - self.first_id) as usize;
            let kind = raw.kind().filter(|_| self.asked.as_ref().is_some_and(|asked| asked.has(index)));
            let Some(kind) = kind else {
                [0, (BtfKind::Fwd as u32) << 24, 0].into_iter().for_each(&mut put);
                continue;
            };
            [strings.add(self, raw.name), raw.info, raw.size_or_type].into_iter().for_each(&mut put);
            let entry = named_entries(kind);
            for i in 0..kind.extra(raw.vlen()) / 4 {
                let word = raw.word(i);
                put(if entry.is_some_and(|words| i % words == 0) { strings.add(self, word) } else { word });
            }
        }
        let end = first_string + strings.bytes.len() as u32;
        (synth::blob(&types, &strings.bytes), end)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{BtfBlobs, Def, KernelBtf};
    use super::*;

    #[derive(Debug)]
    struct Blobs(Vec<(String, Vec<u8>)>);

    impl BtfBlobs for Blobs {
        fn names(&self) -> Vec<String> {
            self.0.iter().map(|(name, _)| name.clone()).collect()
        }

        fn blob(&self, name: &str) -> Option<Result<Vec<u8>, String>> {
            self.0.iter().find(|(of, _)| of == name).map(|(_, bytes)| Ok(bytes.clone()))
        }
    }

    fn kernel_and_module() -> Vec<(String, Vec<u8>)> {
        let kernel = synth::kernel();
        let base = Btf::parse(kernel.clone(), None).unwrap();
        let mut module = synth::Builder::extending(&base);
        let task = base.find_sou(false, "task_struct").unwrap();
        let pointer = module.pointer(task);
        module.sou(false, "of_module", 16, &[("unused", 0, 0), ("task", pointer, 8)]);
        module.sou(false, "other", 4, &[("member", 0, 0)]);
        vec![("vmlinux".into(), kernel), ("module".into(), module.finish())]
    }

    /// What is asked of the types, as text.
    fn answers(types: &KernelBtf) -> String {
        let vmlinux = types.vmlinux().unwrap();
        let field = vmlinux.field("task_struct.thread_info.cpu").unwrap();
        let (module, id) = types.find(&[BtfKind::Struct], "of_module").unwrap();
        let pointer = module.member(id, "task").unwrap();
        let Some(Def::Pointer(target)) = module.def(pointer.ty) else { panic!() };
        let Some(Def::Sou { name, size, members, .. }) = module.def(target) else { panic!() };
        format!(
            "{field:?} {id} {pointer:?} {name} {size} {:?}",
            members.map(|m| m.name.to_owned()).collect::<Vec<_>>()
        )
    }

    #[test]
    fn a_part_answers_what_was_asked_of_the_whole() {
        let all = kernel_and_module();
        let whole = KernelBtf::watched(Arc::new(Blobs(all.clone())));
        let expected = answers(&whole);
        let part = whole.asked();
        assert_eq!(part.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["vmlinux", "module"]);
        let again = KernelBtf::of_blobs(Arc::new(Blobs(part.clone())));
        assert_eq!(answers(&again), expected);
        let vmlinux = again.vmlinux().unwrap();
        assert_eq!(vmlinux.end_id(), whole.vmlinux().unwrap().end_id());
        // What nobody has asked for is not there.
        assert!(
            again.find(&[BtfKind::Struct], "other").is_none() && vmlinux.find_sou(false, "cred").is_none()
        );
        assert!(!part.iter().any(|(_, bytes)| bytes.windows(6).any(|at| at == b"ns_com")));
    }

    #[test]
    fn of_types_that_nobody_asked_for_there_are_none() {
        let whole = KernelBtf::watched(Arc::new(Blobs(kernel_and_module())));
        assert!(whole.asked().is_empty());
        assert!(whole.vmlinux().is_ok());
        let part = whole.asked();
        assert_eq!(part.len(), 1);
        assert_eq!(Btf::parse(part[0].1.clone(), None).unwrap().names(&[BtfKind::Int]).count(), 0);
    }
}
