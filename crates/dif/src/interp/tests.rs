//! The interpreter on small clauses with results computed by hand.

use super::*;
use crate::text::parse;
use crate::verify::verify;

/// A small world: one range of readable memory at 0x1000, and probe names.
struct SmallWorld {
    memory: Vec<u8>,
    thread: u64,
}

impl World for SmallWorld {
    fn builtin(&mut self, builtin: IntBuiltin) -> i64 {
        match builtin {
            IntBuiltin::Arg(n) => i64::from(n) + 100,
            IntBuiltin::Pid => 42,
            _ => 0,
        }
    }

    fn builtin_str(&mut self, builtin: StrBuiltin) -> Vec<u8> {
        match builtin {
            StrBuiltin::Execname => b"a-name-of-more-than-15".to_vec(),
            _ => b"read".to_vec(),
        }
    }

    fn read(&mut self, space: Space, addr: u64, buffer: &mut [u8]) -> bool {
        let Some(start) = addr.checked_sub(0x1000).map(|a| a as usize) else { return false };
        match self.memory.get(start..start + buffer.len()) {
            Some(bytes) if space == Space::User => {
                buffer.copy_from_slice(bytes);
                true
            }
            _ => false,
        }
    }

    fn context(&mut self) -> (u64, u8) {
        (self.thread, 0)
    }
}

fn run(text: &str) -> (Vec<Outcome>, State) {
    let module = parse(text).unwrap();
    verify(&module).unwrap();
    let mut state = State::default();
    let mut world = SmallWorld { memory: b"hello\0world".to_vec(), thread: 1 };
    let all: Vec<usize> = (0..module.clauses.len()).collect();
    let outcomes = Interpreter::new(&module).fire(&all, &mut state, &mut world);
    (outcomes, state)
}

#[test]
fn a_record_has_the_bytes_of_its_layout() {
    let (outcomes, state) = run(r#"
module strsize 16
string s0 = ""
string s1 = "read"
clause "c" record 48 {
b0:
    v0:int = const -2
    v1:str = builtin execname
    v2:str = builtin probefunc
    reserve
    record 0:i32, v0
    record 4:interned, v2
    record 8:str(16), v1
    recordpair 24:uaddr(symbol), v0, v0
    commit
    return
}
"#);
    assert_eq!(outcomes, [Outcome::Completed]);
    let data = &state.records[0].data;
    assert_eq!(data[..4], (-2i32).to_le_bytes());
    assert_eq!(data[4..8], [1, 0, 0, 0]);
    assert_eq!(&data[8..24], b"a-name-of-more-\0");
    assert_eq!(data[24..40], [(-2i64).to_le_bytes(), (-2i64).to_le_bytes()].concat());
    assert_eq!(state.records[0].written.iter().filter(|w| **w).count(), 40);
}

#[test]
fn a_fault_discards_the_record_and_keeps_what_was_stored() {
    let (outcomes, state) = run(r#"
module strsize 16
string s0 = ""
var var0 = global "x" int
clause "c" record 8 {
b0:
    v0:int = const 7
    v1:int = const 0
  action 1
    reserve
    storevar var0, v0
  action 2
    v2:int = sdiv v0, v1
    record 0:i64, v2
    commit
    return
}
clause "d" {
b0:
    v0:int = const 4096
    v1:ptr.kernel = asptr v0
    v2:int = load.u8 v1
    return
}
"#);
    let divided = Fault { clause: 0, kind: FaultKind::DivZero, value: 0, action: 2, offset: 4 };
    let loaded = Fault { clause: 1, kind: FaultKind::BadAddr, value: 4096, action: 0, offset: 2 };
    assert_eq!(outcomes, [Outcome::Faulted(divided.clone()), Outcome::Faulted(loaded.clone())]);
    assert_eq!(state.faults, [divided, loaded]);
    assert!(state.records.is_empty());
    assert_eq!(state.global(VarId(0)), Some(&Val::Int(7)));
}

#[test]
fn strings_end_at_their_nul_or_limit_and_fault_past_readable_memory() {
    let (outcomes, state) = run(r#"
module strsize 16
string s0 = ""
var var0 = global "a" str
var var1 = global "b" str
clause "c" {
b0:
    v0:int = const 4096
    v1:ptr.user = asptr v0
    v2:str = loadstr v1
    storevar var0, v2
    v3:int = const 3
    v4:str = loadstr v1, v3
    storevar var1, v4
    v5:ptr.user = add v1, v3
    v6:ptr.user = add v5, v3
    v7:str = loadstr v6
    return
}
"#);
    assert_eq!(state.global(VarId(0)), Some(&Val::Str(b"hello".to_vec())));
    assert_eq!(state.global(VarId(1)), Some(&Val::Str(b"hel".to_vec())));
    assert!(matches!(outcomes[0], Outcome::Faulted(Fault { kind: FaultKind::BadAddr, value: 4102, .. })));
}

#[test]
fn clauses_of_a_firing_share_this_variables_and_arrays_are_keyed_by_bytes() {
    let (_, state) = run(r#"
module strsize 16
string s0 = ""
string s1 = "k"
var var0 = this "t" int
var var1 = global "arr" str [0:i32, 8:str(16)] size 24
var var2 = self "arr" int [0:i64] size 8
agg agg0 = "_" sum [0:i32] size 8
clause "c" {
b0:
    v0:int = const 9
    storevar var0, v0
    return
}
clause "d" {
b0:
    v0:int = loadvar var0
    v1:str = str s1
    storeelem var1[v0, v1], v1
    storeelem var2[v0], v0
    v2:int = const 4294967305
    v3:str = loadelem var1[v2, v1]
    v4:int = strlen v3
    aggregate agg0[v2](v4)
    deleteelem var1[v0, v1]
    return
}
"#);
    assert_eq!(state.elements(VarId(1)).count(), 0);
    let own: Vec<_> = state.elements(VarId(2)).collect();
    assert_eq!(own, [(Some((1, 0)), &9u64.to_le_bytes()[..], &Val::Int(9))]);
    assert_eq!(state.aggregations[0][&9u64.to_le_bytes()[..]], [1]);
}

#[test]
fn a_full_ring_ends_the_clause_and_the_first_exit_wins() {
    let text = r#"
module strsize 16
string s0 = ""
clause "c" record 0 {
    does nothing
b0:
    v0:int = builtin pid
    exit v0
    reserve
    v1:int = const 1
    exit v1
    commit
    return
}
"#;
    let module = parse(text).unwrap();
    let mut state = State { capacity: Capacity { records: 1, ..Capacity::default() }, ..State::default() };
    let mut world = SmallWorld { memory: Vec::new(), thread: 1 };
    let interpreter = Interpreter::new(&module);
    assert_eq!(interpreter.fire(&[0], &mut state, &mut world), [Outcome::Completed]);
    assert_eq!(interpreter.fire(&[0], &mut state, &mut world), [Outcome::Dropped]);
    assert_eq!((state.exit, state.drops.principal, state.records.len()), (Some(42), 1, 1));
}

const ADDITIONS: &str = r#"
module strsize 16
string s0 = ""
var var0 = global "%a" int [0:u64] size 8
clause "c" record 24 {
b0:
    v0:int = const 1
    v1:int = const 9223372036854775807
    v2:int = const 2
    v3:int = addelem var0[v0], v1
    v4:int = addelem var0[v0], v2
    v5:int = addelem var0[v2], v0
    reserve
    record 0:i64, v3
    record 8:i64, v4
    record 16:i64, v5
    commit
    return
}
"#;

#[test]
fn an_addition_begins_at_0_wraps_around_and_has_the_sum_as_its_value() {
    let (outcomes, state) = run(ADDITIONS);
    assert_eq!(outcomes, [Outcome::Completed]);
    let sums = [i64::MAX, i64::MIN + 1, 1];
    assert_eq!(state.records[0].data, sums.map(i64::to_le_bytes).concat());
    let elements: Vec<_> = state.elements(VarId(0)).map(|(_, key, value)| (key.to_vec(), value)).collect();
    assert_eq!(
        elements,
        [
            (vec![1, 0, 0, 0, 0, 0, 0, 0], &Val::Int(i64::MIN + 1)),
            (vec![2, 0, 0, 0, 0, 0, 0, 0], &Val::Int(1))
        ]
    );
}

#[test]
fn an_addition_without_space_for_its_element_is_a_drop_and_0() {
    let module = parse(ADDITIONS).unwrap();
    let mut state = State { capacity: Capacity { elements: 1, ..Capacity::default() }, ..State::default() };
    let mut world = SmallWorld { memory: Vec::new(), thread: 1 };
    Interpreter::new(&module).fire(&[0], &mut state, &mut world);
    assert_eq!(state.records[0].data, [i64::MAX, i64::MIN + 1, 0].map(i64::to_le_bytes).concat());
    assert_eq!(state.drops.dynamic, 1);
}

#[test]
fn additions_to_elements_that_are_no_numbers_are_refused() {
    let text = ADDITIONS.replace(r#""%a" int"#, r#""%a" str"#);
    let error = verify(&parse(&text).unwrap()).unwrap_err().to_string();
    assert!(error.contains("%a has no integers"), "{error}");
}
