//! Subroutines.
//!
//! Short subroutines are written in place. The others are global functions, which the verifier
//! checks once however often they are called. A function takes the addresses of its strings
//! (the storage of a string each), of the result string, and of the work area of the scratch slot.
//!
//! ```text
//!  mod      dispatch                                       find   index, rindex, strstr
//!  loops    loops, copying, text under construction        token  strtok
//!  text     substr, strchr, strjoin, letters               path   basename, dirname, cleanpath
//!  number   lltostr, strtoll, byte order, rand             json   json
//!  ancestor progenyof                                      file   d_path, process arguments
//!  address  inet_*, link_ntop                              action signals, delay
//!  container  of a control group: its container, its pod     needs  what each needs in the scratch slot
//! ```

mod action;
mod address;
mod ancestor;
mod container;
mod file;
mod find;
mod json;
mod loops;
pub(crate) mod needs;
mod number;
mod path;
mod text;
mod token;

use dif::ir::{FaultKind, InstData, Subr, Value};
use dif::subr::PathOf;

use super::clause::{Clause, Str, Val};
use crate::error::Result;
use crate::mir::{Alu, Arg, Builder, Jmp, Operand, Size, V};
use crate::routines;
use crate::routines::words::{self, NULL};
use crate::target::PidNamespace;
use needs::{TOKEN_HEAD, WORK};

const AF_INET: i64 = 2;
const AF_INET6: i64 = 10;
const ARPHRD_ETHER: i64 = 1;
const ARPHRD_INFINIBAND: i64 = 32;

impl Clause<'_, '_> {
    pub(crate) fn call(&mut self, inst: &InstData, subr: Subr, args: &[Value]) -> Result<()> {
        let number = match subr {
            Subr::Args => {
                let args = self.process_args(inst, args[0], args[1]);
                self.set(inst, Val::Str(args));
                return Ok(());
            }
            Subr::Chill => self.chill(args[0]),
            Subr::Raise => self.raise(args[0]),
            Subr::Speculation => routines::speculation(self.b, self.env.plan),
            Subr::Commit => self.end_speculation(args[0], true),
            Subr::Discard => self.end_speculation(args[0], false),
            Subr::Return => self.set_result(args[0]),
            Subr::DPath | Subr::DentryPath | Subr::Mountpoint | Subr::Fullpath => {
                let of = match subr {
                    Subr::Mountpoint => PathOf::Mount,
                    Subr::Fullpath => PathOf::Full,
                    Subr::DentryPath => PathOf::Dentry,
                    _ => PathOf::File,
                };
                let path = self.d_path(inst, args, of)?;
                self.set(inst, Val::Str(path));
                return Ok(());
            }
            Subr::Container | Subr::Pod => {
                let name = self.name_of_group(inst, args[0], subr == Subr::Pod)?;
                self.set(inst, Val::Str(name));
                return Ok(());
            }
            Subr::Htons => self.swap(16, args[0]),
            Subr::Htonl => self.swap(32, args[0]),
            Subr::Htonll => self.swap(64, args[0]),
            Subr::Getmajor => self.device(true, args[0]),
            Subr::Getminor => self.device(false, args[0]),
            Subr::Rand => self.rand(),
            Subr::First => self.first(args[0]),
            Subr::Progenyof => {
                let Some(task) = self.env.target.task else {
                    let message =
                        "progenyof( ) needs the kernel's types, and this kernel gives none (no BTF)";
                    return self.error(inst.span, message);
                };
                let target = self.env.target;
                let space = match target.pid_namespace {
                    None => None,
                    Some(PidNamespace { ino, numbers: Some(at), .. }) => Some((ino, at)),
                    Some(_) => {
                        let message = "progenyof( ) finds no pid namespaces in this kernel's types";
                        return self.error(inst.span, message);
                    }
                };
                let given = [self.word(args[0]), self.work()];
                self.function("dt_progenyof", &given, |b, _| ancestor::progenyof(b, task, space))
            }
            Subr::Index | Subr::Rindex => {
                let backward = subr == Subr::Rindex;
                let given = [self.text_at(args[0]), self.text_at(args[1]), self.word(args[2]), self.work()];
                let name = if backward { "dt_rindex" } else { "dt_index" };
                self.function(name, &given, |b, storage| find::index(b, storage, backward))
            }
            Subr::Strtoll => {
                let given = [self.text_at(args[0]), self.base(args[1]), self.work()];
                self.function("dt_strtoll", &given, number::strtoll)
            }
            _ => return self.make_string(inst, subr, args),
        };
        self.set(inst, Val::Int(Operand::V(number)));
        Ok(())
    }

    /// Subroutines that return a string.
    fn make_string(&mut self, inst: &InstData, subr: Subr, args: &[Value]) -> Result<()> {
        let Some(result) = inst.result else { return Ok(()) };
        let made = self.temp(result);
        let target = self.memory(made);
        match subr {
            Subr::Substr => {
                let given = [self.text_at(args[0]), target, self.word(args[1]), self.word(args[2])];
                self.function("dt_substr", &given, text::substr);
            }
            Subr::Tail => {
                let from = self.reg(args[1]);
                let bad = self.fault(FaultKind::BadIndex, Operand::V(from));
                self.b.br(Jmp::Ge, from, self.env.module.strsize, bad);
                let all = Arg::Word(self.b.imm(i64::from(i32::MAX)));
                let given = [self.text_at(args[0]), target, Arg::Word(from), all];
                self.function("dt_substr", &given, text::substr);
            }
            Subr::SetChar => {
                let at = self.reg(args[1]);
                let bad = self.fault(FaultKind::BadIndex, Operand::V(at));
                self.b.br(Jmp::Ge, at, self.env.module.strsize, bad);
                let given = [self.text_at(args[0]), target, Arg::Word(at), self.word(args[2])];
                self.writer("dt_setchar", &given, text::set_char);
            }
            Subr::Strchr | Subr::Strrchr => {
                let backward = subr == Subr::Strrchr;
                let name = if backward { "dt_strrchr" } else { "dt_strchr" };
                let given = [self.text_at(args[0]), target, self.word(args[1])];
                self.function(name, &given, |b, storage| text::from_byte(b, storage, backward));
            }
            Subr::Strstr => {
                let given = [self.text_at(args[0]), self.text_at(args[1]), target, self.work()];
                self.function("dt_strstr", &given, find::strstr);
            }
            Subr::Strjoin => {
                let Arg::Memory(at, size) = target else { return Ok(()) };
                let given = [self.text_at(args[0]), self.text_at(args[1]), Arg::Memory(at, 2 * size)];
                let full = self.writer("dt_strjoin", &given, text::strjoin);
                let bad = self.fault(FaultKind::NoScratch, Operand::Imm(0));
                self.b.br(Jmp::Ne, full, 0, bad);
            }
            Subr::Tolower | Subr::Toupper => {
                let (name, from) =
                    if subr == Subr::Toupper { ("dt_toupper", b'a') } else { ("dt_tolower", b'A') };
                let given = [self.text_at(args[0]), target];
                self.function(name, &given, |b, storage| text::letters(b, storage, from));
            }
            Subr::Memstr => {
                let Arg::Memory(at, size) = target else { return Ok(()) };
                let (separator, given) = (self.word(args[1]), self.reg(args[2]));
                let strsize = self.env.module.strsize;
                words::zero(self.b, at, 0, size);
                let b = &mut *self.b;
                // One less, like the original. At most what a string holds.
                let len = b.copy(given);
                b.if_(Jmp::Eq, len, 0, |b| {
                    b.set(len, 1);
                });
                b.update(Alu::Sub, len, 1);
                b.if_(Jmp::Ge, len, strsize, |b| {
                    b.set(len, i64::from(strsize) - 1);
                });
                self.read_some(at, args[0], len);
                let given = [target, separator, Arg::Word(len), self.work()];
                self.function("dt_memstr", &given, text::memstr);
            }
            Subr::Strtok => {
                let s = self.string(args[0]);
                let storage = self.env.module.string_storage();
                let (base, at) = self.token_state();
                let next = self.b.label();
                // Where the string is NULL, the previous string is continued.
                if let (Str::Bytes(from, off), true) = (s, self.facts.nulls[args[0].0 as usize]) {
                    let first = self.b.load(Size::B8, from, off);
                    self.b.br(Jmp::Eq, first, NULL, next);
                }
                self.b.store(Size::B8, base, at, 1);
                self.write_string(s, base, at + TOKEN_HEAD as i16, storage, false);
                self.b.bind(next);
                self.next_token(target, args[1]);
            }
            Subr::StrtokNext => self.next_token(target, args[0]),
            Subr::Basename | Subr::Dirname => {
                let directory = subr == Subr::Dirname;
                let name = if directory { "dt_dirname" } else { "dt_basename" };
                let given = [self.text_at(args[0]), target, self.work()];
                self.writer(name, &given, |b, strsize| path::component(b, strsize, directory));
            }
            Subr::Cleanpath => {
                let given = [self.text_at(args[0]), target, self.work()];
                self.writer("dt_cleanpath", &given, path::cleanpath);
            }
            Subr::Lltostr => {
                let base = self.base(args[1]);
                let given = [target, self.word(args[0]), base, self.work()];
                self.writer("dt_lltostr", &given, number::lltostr);
            }
            Subr::Json => {
                let given = [self.text_at(args[0]), self.text_at(args[1]), target, self.work()];
                self.function("dt_json", &given, json::json);
            }
            Subr::InetNtoa => self.inet4(args[0], target),
            Subr::InetNtoa6 => self.inet6(args[0], target, false),
            Subr::InetNtop => {
                self.either(args[0], [AF_INET, AF_INET6], |c, first| {
                    if first { c.inet4(args[1], target) } else { c.inet6(args[1], target, true) }
                });
            }
            Subr::LinkNtop => {
                self.either(args[0], [ARPHRD_ETHER, ARPHRD_INFINIBAND], |c, ethernet| {
                    let count = if ethernet { 6 } else { 20 };
                    c.read_address(args[1], count);
                    let count = Arg::Word(c.b.imm(count));
                    let given = [target, c.work(), count];
                    c.writer("dt_link_ntop", &given, address::link);
                });
            }
            other => return self.error(inst.span, &format!("{other:?} is not compiled")),
        }
        self.set(inst, Val::Str(made));
        Ok(())
    }

    /// The first character of a string.
    fn first(&mut self, v: Value) -> V {
        let s = self.string(v);
        let (p, off) = self.address(s);
        let c = self.b.load(Size::B1, p, off);
        super::int::extend(self.b, 8, true, c)
    }

    /// Calls a global function, built for the storage of the module's strings.
    fn function(&mut self, name: &str, args: &[Arg], body: impl FnOnce(&mut Builder, u32)) -> V {
        let storage = self.env.module.string_storage();
        self.b.call_global(name, args, |b| body(b, storage))
    }

    /// Calls a global function that makes a string of less than the module's `strsize` characters.
    fn writer(&mut self, name: &str, args: &[Arg], body: impl FnOnce(&mut Builder, u32)) -> V {
        let strsize = self.env.module.strsize;
        self.b.call_global(name, args, |b| body(b, strsize))
    }

    fn memory(&mut self, s: Str) -> Arg {
        let (p, off) = self.address(s);
        Arg::Memory(self.b.add(p, i32::from(off)), self.env.module.string_storage())
    }

    fn text_at(&mut self, v: Value) -> Arg {
        let s = self.string(v);
        self.memory(s)
    }

    fn word(&mut self, v: Value) -> Arg {
        Arg::Word(self.reg(v))
    }

    fn work(&mut self) -> Arg {
        number::work(self.work_at(0))
    }

    fn work_at(&mut self, at: i16) -> V {
        let (base, from) = self.place(self.firing.parts.work, WORK);
        self.b.add(base, i32::from(from + at))
    }

    /// The state of `strtok()`, as base and offset.
    fn token_state(&mut self) -> (V, i16) {
        let size = TOKEN_HEAD + self.env.module.string_storage();
        self.place(self.firing.parts.token.unwrap_or(0), size)
    }

    fn next_token(&mut self, target: Arg, delimiters: Value) {
        let (Arg::Memory(target, _) | Arg::Word(target)) = target;
        let (Arg::Memory(delimiters, _) | Arg::Word(delimiters)) = self.text_at(delimiters);
        let (slot, at) = self.token_state();
        let state = self.b.add(slot, i32::from(at));
        let work = self.work_at(0);
        let given = token::args(self.env.module.string_storage(), target, delimiters, state, work);
        self.function("dt_strtok", &given, token::token);
    }

    /// Calls `make` with true or false according to a kind. Faults when the kind is neither of the
    /// two.
    fn either(&mut self, kind: Value, known: [i64; 2], mut make: impl FnMut(&mut Self, bool)) {
        let bad = self.fault(FaultKind::IllegalOp, Operand::Imm(0));
        let kind = self.reg(kind);
        let (second, done) = (self.b.label(), self.b.label());
        self.b.br(Jmp::Ne, kind, known[0], second);
        make(self, true);
        self.b.jmp(done);
        self.b.bind(second);
        self.b.br(Jmp::Ne, kind, known[1], bad);
        make(self, false);
        self.b.bind(done);
    }

    fn inet4(&mut self, addr: Value, target: Arg) {
        self.read_address(addr, 4);
        let given = [target, self.work()];
        self.writer("dt_inet4", &given, address::inet4);
    }

    fn inet6(&mut self, addr: Value, target: Arg, full: bool) {
        self.read_address(addr, 16);
        let full = Arg::Word(self.b.imm(i64::from(full)));
        let given = [target, self.work(), full];
        self.writer("dt_inet6", &given, address::inet6);
    }

    /// Reads an address of so many bytes into the work area.
    fn read_address(&mut self, addr: Value, count: i64) {
        let to = self.work_at(address::ADDRESS);
        self.read_bytes(to, addr, count);
    }
}
