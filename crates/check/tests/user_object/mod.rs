//! Two builds of a program that processes 7 and 8 run, with other layouts, for the golden tests.

use std::sync::Arc;

use probes::{
    ArgType, Attributes, Family, ListCatalog, ProbeDesc, ProviderFacts, ProviderStability, UserObject,
    UserVariable, VariablePlace,
};
use types::TagKind;
use types::btf::synth::{Builder, encoding};
use types::btf::{Btf, BtfKind, Origin};

#[derive(Debug)]
struct File(u64);

impl Origin for File {
    fn file(&self) -> u64 {
        self.0
    }

    fn complete(&self, _: u32, _: bool, _: &str) -> Option<(Arc<Btf>, u32)> {
        None
    }
}

#[derive(Debug)]
struct Program {
    number: u64,
    btf: Arc<Btf>,
}

impl UserObject for Program {
    fn file(&self) -> u64 {
        self.number
    }

    fn find(&self, kind: Option<TagKind>, name: &str) -> Result<Option<(Arc<Btf>, u32)>, String> {
        let kinds = match kind {
            None => &[BtfKind::Typedef],
            Some(TagKind::Struct) => &[BtfKind::Struct],
            Some(TagKind::Union) => &[BtfKind::Union],
            Some(TagKind::Enum) => &[BtfKind::Enum],
        };
        Ok(self.btf.find(kinds, name).map(|id| (self.btf.clone(), id)))
    }

    fn variable(&self, name: &str) -> Result<Option<UserVariable>, String> {
        match name {
            "stripped" => Err("it has no debug information".into()),
            "head" => {
                let ty = self.btf.find(&[BtfKind::Typedef], "conn_p").map(|id| (self.btf.clone(), id));
                Ok(ty.map(|ty| UserVariable { ty, place: VariablePlace::Address(0x1000 * self.number) }))
            }
            _ => Ok(None),
        }
    }

    fn like(&self, _: Option<TagKind>, _: &str) -> Vec<String> {
        vec!["conn".into()]
    }
}

fn program(number: u64) -> (Arc<Btf>, u32) {
    let mut b = Builder::default();
    let int = b.int("int", 4, encoding::SIGNED);
    let ch = b.int("char", 1, encoding::SIGNED | encoding::CHAR);
    let text = b.pointer(ch);
    let next = b.next_id() + 1;
    let pointer = b.pointer(next);
    // The second build has another member before the others.
    let by = if number == 7 { 0 } else { 8 };
    b.sou(false, "conn", 24 + by, &[("id", int, by), ("name", text, by + 8), ("next", pointer, by + 16)]);
    b.typedef("conn_p", pointer);
    let btf = Btf::parse(b.finish(), None).unwrap().of_process(Arc::new(File(number)));
    (Arc::new(btf), pointer)
}

/// Adds their processes, and the probe of a function of theirs.
pub(crate) fn add(list: &mut ListCatalog) {
    list.providers.push(ProviderFacts {
        family: Family::of_processes("pid"),
        has_errno: false,
        stability: ProviderStability::uniform(Attributes::STABLE),
    });
    for number in [7, 8] {
        let (btf, pointer) = program(number);
        let args = vec![
            ArgType::btf(0, &btf, pointer),
            ArgType::text(1, "double").unreadable("it is in a register that is not seen"),
        ];
        let provider = format!("pid{number}");
        list.add_with(ProbeDesc::new(provider.clone(), "prog", "take", "entry"), args);
        list.objects.push((provider, "a.out".into(), Arc::new(Program { number, btf })));
    }
}
