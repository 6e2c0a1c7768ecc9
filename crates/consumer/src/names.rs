//! Gives values their symbols: from what a record has to what an event says.
//!
//! A frame of a stack of a process has the name of the code that called, and that is before the
//! return address. If the call is the last instruction of a function (`exit`, `abort` and a failed
//! assertion do not return), the return address is behind the function: in the next one, or in
//! none. So the address before it is looked up, as debuggers do. The offset remains that of the
//! return address. Two frames have no such call: the first of a stack, and the one that a signal
//! interrupted.
//!
//! A return address behind the start of a function has that function's name anyway. Only the others
//! are looked up twice.
//!
//! Functions of an interpreter ([`plane::calls`]) are frames of their own behind that of the
//! function which runs them, the innermost first. A stack may be shorter than what the interpreter
//! runs. If it was cut at the frames that were asked for, so are they; if its outer frames were not
//! found, the interpreter's are known nevertheless, and come before the frame that says so.

use std::sync::Arc;

use events::{AddrForm, Form, Shape, Symbol, SymbolName, Value};
use plane::calls::Call;
use plane::stacks::Stack;
use plane::stacks::{DIFFERS, GUEST};
use plane::unwind::INCOMPLETE;

use crate::pad::up_to;
use crate::raw::{Raw, Space, number};
use crate::symbolizer::{Process, Symbolizer};

/// Symbol lookup for the values of events.
pub(crate) struct Names<'a> {
    pub(crate) symbols: &'a mut dyn Symbolizer,
    /// The process of `%A` on a plain address.
    pub(crate) target: Option<u32>,
    /// When the values were recorded, by the clock of the records. Keys of aggregations have no
    /// time: they are values of many firings.
    pub(crate) time: Option<u64>,
    /// Frames of stacks have names.
    pub(crate) of_stacks: bool,
}

/// Addresses that are prepared at once.
const AT_ONCE: usize = 1 << 16;

/// Functions that return from a handler of a signal. The kernel puts the start of one where a
/// return address is, so nothing before it has called. The code of the next frame was interrupted,
/// and has called nothing either.
const SIGNAL_RETURNS: [&str; 2] = ["__restore_rt", "__kernel_rt_sigreturn"];

fn is_signal_return(name: &SymbolName) -> bool {
    name.symbol.as_deref().is_some_and(|symbol| SIGNAL_RETURNS.contains(&symbol))
}

/// The places of the code that the frames of a stack of a process were in: a return address is
/// behind the call, and may be that of the next line.
fn places(stack: &Stack) -> impl Iterator<Item = (Process, u64)> + '_ {
    addresses(stack).enumerate().map(|(n, (process, pc))| (process, pc.saturating_sub(u64::from(n > 0))))
}

/// The return addresses of a stack of a process, and perhaps one that a signal interrupted.
fn callers(stack: &Stack) -> impl Iterator<Item = (Process, u64)> + '_ {
    addresses(stack).skip(1)
}

/// The frames of a stack of a process. Behind them are zeros; a zero among them is a call of no
/// function.
fn known(stack: &Stack) -> &[u64] {
    let end = stack.pcs.iter().rposition(|pc| *pc != 0).map_or(0, |last| last + 1);
    stack.pcs.get(..end).unwrap_or_default()
}

/// The addresses of a stack of a process.
fn addresses(stack: &Stack) -> impl Iterator<Item = (Process, u64)> + '_ {
    let process = Process { pid: stack.tgid, time: stack.time };
    known(stack).iter().take_while(|pc| **pc != INCOMPLETE).map(move |pc| (process, *pc))
}

impl Names<'_> {
    /// The value with its symbols.
    pub(crate) fn value<'v>(&mut self, raw: Raw<'v>) -> Value<'v> {
        match raw {
            Raw::Int(int) => Value::Int(int),
            Raw::Str(text, size) => Value::Str { text: text.into(), size },
            Raw::Made(text) => {
                let size = text.len() as u32 + 1;
                Value::Str { text: text.into_vec().into(), size }
            }
            Raw::Address(text, size) => Value::Str { text: text.as_bytes().to_vec().into(), size },
            Raw::Name(text, size) => Value::Name { text: text.into(), size },
            Raw::Bytes(bytes) => Value::Bytes(bytes.into()),
            Raw::Stack(stack) => Value::Stack(self.stack(&stack)),
            Raw::KernelAddr(addr, form) => Value::Symbol(self.kernel(addr, form).into()),
            Raw::UserAddr { pid, addr, form } => {
                Value::Symbol(self.user(self.process(pid), addr, form).into())
            }
        }
    }

    /// The value of an argument whose conversion prints an address.
    pub(crate) fn argument<'v>(&mut self, raw: Raw<'v>, address: Option<Space>) -> Value<'v> {
        let (Raw::Int(int), Some(space)) = (&raw, address) else { return self.value(raw) };
        let addr = int.as_unsigned();
        let symbol = match (space, self.target) {
            (Space::Kernel, _) => self.kernel(addr, AddrForm::Address),
            (Space::Target, Some(pid)) => self.user(self.process(pid), addr, AddrForm::Address),
            (Space::Target, None) => {
                let name = SymbolName::default();
                Symbol::new(addr, None, AddrForm::Address, name)
            }
        };
        Value::Symbol(symbol.into())
    }

    /// A process when the values were recorded: it may have executed another program since.
    fn process(&self, pid: u32) -> Process {
        Process { pid, time: self.time.map_or(0, symbols::since_boot) }
    }

    fn kernel(&mut self, address: u64, form: AddrForm) -> Symbol {
        Symbol::new(address, None, form, self.symbols.kernel(address))
    }

    /// The name of a frame of a process whose address has the name `name`. `returns`: it is behind
    /// a call.
    fn frame(&mut self, process: Process, pc: u64, name: SymbolName, returns: bool) -> SymbolName {
        if !returns || name.offset != 0 || is_signal_return(&name) {
            return name;
        }
        let mut caller = self.symbols.user(process, pc.saturating_sub(1));
        match (&caller.symbol, &name.symbol) {
            (Some(_), _) => caller.offset += 1,
            // The next object may be adjacent.
            (None, None) if caller.module.is_some() => {
                caller.in_file = caller.in_file.map(|address| address.wrapping_add(1));
            }
            // Code is also entered by a return address that no call has pushed (`makecontext`).
            _ => return name,
        }
        caller
    }

    fn user(&mut self, process: Process, address: u64, form: AddrForm) -> Symbol {
        if form == AddrForm::Guest {
            let name = self.symbols.guest(process.pid, address);
            return Symbol::new(address, Some(process.pid), form, name);
        }
        let mut name = self.symbols.user(process, address);
        if form == AddrForm::Address && self.symbols.shows_lines() {
            self.symbols.lines(process, address, &mut name);
        }
        Symbol::new(address, Some(process.pid), form, name)
    }

    /// The name of a function of an interpreter.
    fn interpreted(&mut self, call: Call) -> SymbolName {
        let mut name = SymbolName::default();
        name.interpreted = true;
        let Some(code) =
            Some(call.place).filter(|place| *place != 0).and_then(|place| self.symbols.code(place))
        else {
            return name;
        };
        let text = |text: &str| (!text.is_empty()).then(|| Arc::from(text));
        (name.symbol, name.file) = (text(&code.name), text(&code.file));
        name.line = call.line;
        name
    }

    /// The frames of a stack of a process: those of functions that were put inline are before the
    /// one with the code, those of functions of an interpreter after the one that runs them. The
    /// last one may stand for those that are not known.
    fn frames(&mut self, process: Process, stack: &Stack) -> Vec<Symbol> {
        let shows_lines = self.of_stacks && self.symbols.shows_lines();
        let mut names = Vec::new();
        if self.of_stacks {
            self.symbols.prepare(&addresses(stack).collect::<Vec<_>>());
            names.extend(addresses(stack).map(|(process, pc)| self.symbols.user(process, pc)));
            let returns = callers(stack).zip(names.iter().skip(1));
            self.prepare_callers(returns.filter(|(_, name)| name.offset == 0).map(|(at, _)| at).collect());
        }
        let mut names = names.into_iter();
        if shows_lines {
            self.symbols.prepare_lines(&places(stack).collect::<Vec<_>>());
        }
        let (mut frames, mut returns, mut last) = (Vec::new(), false, 0);
        let calls = stack.calls.iter().filter(|_| self.of_stacks).map(|word| Call::of_word(*word));
        let mut calls = calls.collect::<Vec<_>>().into_iter().peekable();
        for (number, pc) in known(stack).iter().copied().enumerate() {
            let symbol = |name| Symbol::new(pc, Some(process.pid), AddrForm::Address, name);
            if pc == INCOMPLETE {
                let outer = calls.by_ref().map(|call| self.interpreted(call));
                frames
                    .extend(outer.map(|name| Symbol::new(last, Some(process.pid), AddrForm::Address, name)));
            }
            last = pc;
            if pc == INCOMPLETE || !self.of_stacks {
                let name = if pc == INCOMPLETE { SymbolName::incomplete() } else { SymbolName::default() };
                frames.push(symbol(name));
                continue;
            }
            let name = names.next().unwrap_or_else(|| self.symbols.user(process, pc));
            let mut name = self.frame(process, pc, name, returns);
            if shows_lines {
                let inlined = self.symbols.lines(process, pc.saturating_sub(returns.into()), &mut name);
                frames.extend(inlined.into_iter().map(symbol));
            }
            returns = !is_signal_return(&name);
            frames.push(symbol(name));
            while let Some(call) = calls.next_if(|call| usize::from(call.frame) <= number) {
                frames.push(symbol(self.interpreted(call)));
            }
        }
        frames
    }

    fn stack(&mut self, stack: &Stack) -> events::Stack {
        let process = Process { pid: stack.tgid, time: stack.time };
        if stack.tgid == 0 {
            let pcs = stack.pcs.iter().take_while(|pc| **pc != 0);
            let plain = |pc: u64, name| Symbol::new(pc, None, AddrForm::Address, name);
            let frames = pcs.map(|pc| match *pc {
                INCOMPLETE => plain(*pc, SymbolName::incomplete()),
                GUEST => plain(*pc, SymbolName::mark(SymbolName::GUEST)),
                DIFFERS => plain(*pc, SymbolName::mark(SymbolName::DIFFERS)),
                pc if self.of_stacks => self.kernel(pc, AddrForm::Address),
                pc => plain(pc, SymbolName::default()),
            });
            return events::Stack { process: None, frames: frames.collect() };
        }
        events::Stack { process: Some(stack.tgid), frames: self.frames(process, stack) }
    }

    /// Looks up the code before these return addresses together.
    fn prepare_callers(&mut self, mut returns: Vec<(Process, u64)>) {
        if !returns.is_empty() {
            returns.iter_mut().for_each(|(_, pc)| *pc = pc.saturating_sub(1));
            self.symbols.prepare(&returns);
        }
    }

    /// Looks up the names of addresses together. Return addresses among them are given again as
    /// `returns`.
    fn prepare_names(&mut self, wanted: &[(Process, u64)], mut returns: Vec<(Process, u64)>) {
        self.symbols.prepare(wanted);
        returns.retain(|(process, pc)| self.symbols.user(*process, *pc).offset == 0);
        self.prepare_callers(returns);
    }

    /// Looks up all symbols of the keys together.
    pub(crate) fn prepare<'k>(&mut self, keys: impl Iterator<Item = Raw<'k>>) {
        let mut wanted: Vec<(Process, u64)> = Vec::new();
        let mut returns: Vec<(Process, u64)> = Vec::new();
        let mut lines: Vec<(Process, u64)> = Vec::new();
        let shows_lines = self.symbols.shows_lines();
        for key in keys {
            match key {
                Raw::Stack(stack) if stack.tgid != 0 && self.of_stacks => {
                    wanted.extend(addresses(&stack));
                    returns.extend(callers(&stack));
                    lines.extend(places(&stack).filter(|_| shows_lines));
                }
                Raw::UserAddr { pid, addr, form } if form != AddrForm::Guest => {
                    let address = (self.process(pid), addr);
                    wanted.push(address);
                    lines.extend((shows_lines && form == AddrForm::Address).then_some(address));
                }
                _ => {}
            }
            if wanted.len() >= AT_ONCE {
                self.prepare_names(&std::mem::take(&mut wanted), std::mem::take(&mut returns));
                self.symbols.prepare_lines(&std::mem::take(&mut lines));
            }
        }
        if !wanted.is_empty() {
            self.prepare_names(&wanted, returns);
            self.symbols.prepare_lines(&lines);
        }
    }

    /// The functions that pointers in a printed value point to, each once.
    pub(crate) fn functions(&mut self, shape: &Shape, bytes: &[u8]) -> Vec<Symbol> {
        let mut all = Vec::new();
        self.find_functions(shape, bytes, &mut all);
        all
    }

    fn find_functions(&mut self, shape: &Shape, bytes: &[u8], all: &mut Vec<Symbol>) {
        let bytes = up_to(bytes, shape.size as usize);
        match &shape.form {
            Form::FunctionPointer => {
                let address = number(bytes);
                if address != 0 && all.iter().all(|s| s.address != address) {
                    all.push(self.kernel(address, AddrForm::Symbol));
                }
            }
            Form::Array(element) => {
                for part in bytes.chunks(element.size.max(1) as usize) {
                    self.find_functions(element, part, all);
                }
            }
            Form::Sou(members) => {
                for member in members.iter().filter(|m| m.bits.is_none()) {
                    let bytes = bytes.get(member.offset as usize..).unwrap_or_default();
                    self.find_functions(&member.shape, bytes, all);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions of a process: where each begins and ends, and its name. Their object is from
    /// 0x1000 on, that before is unknown.
    struct Functions {
        all: Vec<(u64, u64, &'static str)>,
        prepared: Vec<u64>,
    }

    impl Symbolizer for Functions {
        fn prepare(&mut self, wanted: &[(Process, u64)]) {
            self.prepared.extend(wanted.iter().map(|(_, addr)| *addr));
        }

        fn kernel(&mut self, _: u64) -> SymbolName {
            SymbolName::default()
        }

        fn user(&mut self, _: Process, addr: u64) -> SymbolName {
            let at = self.all.iter().find(|(start, end, _)| (*start..*end).contains(&addr));
            let module = (0x1000..0x2000).contains(&addr).then(|| "a.out".into());
            match at {
                Some((start, _, name)) => SymbolName::new(module, Some((*name).into()), addr - start),
                None => {
                    let mut name = SymbolName::new(module, None, 0);
                    name.in_file = addr.checked_sub(0xf00);
                    name
                }
            }
        }
    }

    fn functions() -> Functions {
        let all = vec![
            (0x1000, 0x1010, "die"),
            (0x1010, 0x1020, "pre"),
            (0x1020, 0x1030, "post"),
            (0x1040, 0x1050, "before"),
            (0x1050, 0x1060, "__restore_rt"),
            (0x1070, 0x1080, "start"),
            (0x1ff0, 0x2000, "last"),
        ];
        Functions { all, prepared: Vec::new() }
    }

    fn written(symbols: &mut Functions, pcs: &[u64]) -> Vec<String> {
        let mut names = Names { symbols, target: None, time: None, of_stacks: true };
        let stack = names.stack(&Stack { tgid: 7, time: 0, pcs: pcs.to_vec(), ..Stack::default() });
        let text = |symbol: &Symbol| {
            let mut text = Vec::new();
            symbol.write(&mut text);
            String::from_utf8(text).unwrap()
        };
        stack.frames.iter().map(text).collect()
    }

    #[test]
    fn a_caller_whose_last_instruction_is_the_call_has_its_own_name() {
        let of = |pcs: &[u64]| written(&mut functions(), pcs);
        // The offset is that of the return address, which may be in the next function, in none or
        // behind the object.
        assert_eq!(of(&[0x1004, 0x1010, 0x1018]), ["a.out`die+0x4", "a.out`die+0x10", "a.out`pre+0x8"]);
        assert_eq!(of(&[0x1004, 0x1030, 0x2000]), ["a.out`die+0x4", "a.out`post+0x10", "a.out`last+0x10"]);
        // The first frame is no caller.
        assert_eq!(of(&[0x1010, 0x1011]), ["a.out`pre", "a.out`pre+0x1"]);
        // An address that was put there without a call, and one without a name.
        assert_eq!(of(&[0x1004, 0x1070, 0x1065]), ["a.out`die+0x4", "a.out`start", "a.out+0x165"]);
        assert_eq!(of(&[0x1004, 0x3000, INCOMPLETE]), ["a.out`die+0x4", "0x3000", "[incomplete]"]);
    }

    #[test]
    fn code_that_a_signal_interrupted_at_its_start_has_its_own_name() {
        let frames = written(&mut functions(), &[0x1004, 0x1050, 0x1010, 0x1010]);
        assert_eq!(frames, ["a.out`die+0x4", "a.out`__restore_rt", "a.out`pre", "a.out`die+0x10"]);
    }

    #[test]
    fn a_call_of_no_function_is_a_frame_at_zero() {
        let frames = written(&mut functions(), &[0x1004, 0x1050, 0, 0x1010, 0, 0]);
        assert_eq!(frames, ["a.out`die+0x4", "a.out`__restore_rt", "0x0", "a.out`die+0x10"]);
        assert_eq!(written(&mut functions(), &[0, 0, 0]), [""; 0]);
    }

    /// A process with code objects at the places 5 and 6, and perhaps a function that is put inline
    /// into `die`.
    struct Interpreter {
        functions: Functions,
        inlines: bool,
    }

    impl Symbolizer for Interpreter {
        fn kernel(&mut self, _: u64) -> SymbolName {
            SymbolName::default()
        }

        fn user(&mut self, process: Process, addr: u64) -> SymbolName {
            self.functions.user(process, addr)
        }

        fn shows_lines(&self) -> bool {
            self.inlines
        }

        fn lines(&mut self, _: Process, addr: u64, name: &mut SymbolName) -> Vec<SymbolName> {
            let mut inlined = SymbolName::new(name.module.clone(), Some("inner".into()), 0);
            inlined.inlined = true;
            (0x1000..0x1010).contains(&addr).then_some(inlined).into_iter().collect()
        }

        fn code(&mut self, place: u32) -> Option<Arc<plane::calls::Code>> {
            let code = |file: &str, name: &str| plane::calls::Code { file: file.into(), name: name.into() };
            match place {
                5 => Some(code("/srv/app.py", "Server.handle").into()),
                6 => Some(code("/srv/app.py", "main").into()),
                7 => Some(code("", "").into()),
                _ => None,
            }
        }
    }

    /// The frames of a stack with functions of an interpreter: the number of the frame, the line
    /// and the place of each.
    fn interpreted(pcs: &[u64], calls: &[(u8, Option<u32>, u32)]) -> Vec<Symbol> {
        frames_of(&mut Interpreter { functions: functions(), inlines: false }, true, pcs, calls)
    }

    fn frames_of(
        symbols: &mut Interpreter,
        of_stacks: bool,
        pcs: &[u64],
        calls: &[(u8, Option<u32>, u32)],
    ) -> Vec<Symbol> {
        let word = |(frame, line, place): &(u8, Option<u32>, u32)| {
            Call { frame: *frame, line: *line, place: *place }.word()
        };
        let calls = calls.iter().map(word).collect();
        let mut names = Names { symbols, target: None, time: None, of_stacks };
        names.stack(&Stack { tgid: 7, time: 0, pcs: pcs.to_vec(), calls }).frames
    }

    fn texts(frames: &[Symbol]) -> Vec<String> {
        frames.iter().map(Symbol::text).collect()
    }

    #[test]
    fn functions_of_an_interpreter_follow_the_frame_that_runs_them() {
        let calls = [(1, Some(12), 5), (1, Some(40), 6), (3, Some(39), 6)];
        let frames = interpreted(&[0x1004, 0x1014, 0x1024, 0x1044, 0x1074, 0], &calls);
        let expected = [
            "a.out`die+0x4",
            "a.out`pre+0x4",
            "[ /srv/app.py:12 (Server.handle) ]",
            "[ /srv/app.py:40 (main) ]",
            "a.out`post+0x4",
            "a.out`before+0x4",
            "[ /srv/app.py:39 (main) ]",
            "a.out`start+0x4",
        ];
        assert_eq!(texts(&frames), expected);
        let [handle, main] = &frames[2..4] else { panic!() };
        assert!(handle.name.interpreted && main.name.interpreted && !frames[1].name.interpreted);
        assert_eq!((handle.address, handle.process, handle.name.module.as_deref()), (0x1014, Some(7), None));
        assert_eq!((handle.name.symbol.as_deref(), handle.name.line), (Some("Server.handle"), Some(12)));
        // The first and the last frame run some, too.
        let frames = interpreted(&[0x1004, 0x1014], &[(0, Some(11), 5), (1, Some(39), 6)]);
        let (first, last) = ("[ /srv/app.py:11 (Server.handle) ]", "[ /srv/app.py:39 (main) ]");
        assert_eq!(texts(&frames), ["a.out`die+0x4", first, "a.out`pre+0x4", last]);
    }

    #[test]
    fn what_is_not_known_of_a_function_of_an_interpreter_is_left_out() {
        let calls = [(0, None, 5), (0, Some(9), 0), (0, Some(9), 8), (0, None, 7)];
        let place = "[ /srv/app.py (Server.handle) ]";
        let expected = ["a.out`die+0x4", place, "[ ? ]", "[ ? ]", "[ ? ]"];
        let frames = interpreted(&[0x1004], &calls);
        assert_eq!(texts(&frames), expected);
        assert!(frames[1..].iter().all(|frame| frame.name.interpreted));
    }

    #[test]
    fn functions_of_an_interpreter_beyond_a_stack_are_cut_with_it_unless_it_is_incomplete() {
        let calls = [(0, Some(11), 5), (2, Some(39), 6), (200, Some(11), 5)];
        let frames = interpreted(&[0x1004, 0x1014, 0, 0], &calls);
        let handle = "[ /srv/app.py:11 (Server.handle) ]";
        assert_eq!(texts(&frames), ["a.out`die+0x4", handle, "a.out`pre+0x4"]);
        let frames = interpreted(&[0x1004, 0x1014, INCOMPLETE], &calls);
        let expected =
            ["a.out`die+0x4", handle, "a.out`pre+0x4", "[ /srv/app.py:39 (main) ]", handle, "[incomplete]"];
        assert_eq!(texts(&frames), expected);
        assert_eq!((frames[3].address, frames[4].address, frames[5].address), (0x1014, 0x1014, INCOMPLETE));
        // No frame of the processor is known.
        assert_eq!(texts(&interpreted(&[INCOMPLETE], &calls[..1])), [handle, "[incomplete]"]);
        assert_eq!(texts(&interpreted(&[], &calls)), [""; 0]);
    }

    #[test]
    fn functions_of_an_interpreter_follow_the_code_that_others_are_put_inline_into() {
        let mut symbols = Interpreter { functions: functions(), inlines: true };
        let frames = frames_of(&mut symbols, true, &[0x1004, 0x1014], &[(0, Some(11), 5)]);
        let expected =
            ["a.out`inner [inlined]", "a.out`die+0x4", "[ /srv/app.py:11 (Server.handle) ]", "a.out`pre+0x4"];
        assert_eq!(texts(&frames), expected);
    }

    #[test]
    fn stacks_without_names_are_without_functions_of_an_interpreter() {
        let mut symbols = Interpreter { functions: functions(), inlines: true };
        let calls = [(0, None, 5), (1, None, 6)];
        let frames = frames_of(&mut symbols, false, &[0x1004, INCOMPLETE], &calls);
        assert_eq!(texts(&frames), ["0x1004", "[incomplete]"]);
    }

    /// Executes another program at the 2000th second.
    struct Executing;

    impl Symbolizer for Executing {
        fn kernel(&mut self, _: u64) -> SymbolName {
            SymbolName::default()
        }

        fn user(&mut self, process: Process, _: u64) -> SymbolName {
            let name = if (1..2_000_000_000_000).contains(&process.time) { "old" } else { "new" };
            SymbolName::new(Some(name.into()), None, 0)
        }
    }

    #[test]
    fn an_address_in_a_record_has_the_name_in_the_program_of_that_time() {
        // Both clocks advance alike, and the system sleeps now and then.
        let slept = symbols::since_boot(0);
        let second = |n: u64| Some((n * 1_000_000_000).saturating_sub(slept));
        for (time, expected) in [(second(1999), "old"), (second(2001), "new"), (None, "new")] {
            let mut names = Names { symbols: &mut Executing, target: Some(7), time, of_stacks: true };
            let module = |value| match value {
                Value::Symbol(symbol) => symbol.name.module.clone(),
                _ => None,
            };
            let raw = Raw::UserAddr { pid: 7, addr: 0x1000, form: AddrForm::Module };
            assert_eq!(module(names.value(raw)).as_deref(), Some(expected));
            let plain = Raw::Int(events::Int::new(0x1000, 8, false));
            assert_eq!(module(names.argument(plain, Some(Space::Target))).as_deref(), Some(expected));
        }
    }

    #[test]
    fn only_return_addresses_at_no_offset_are_prepared_twice() {
        let mut symbols = functions();
        written(&mut symbols, &[0x1010, 0x1018, 0x1020]);
        assert_eq!(symbols.prepared, [0x1010, 0x1018, 0x1020, 0x101f]);
        symbols.prepared.clear();
        let stack =
            || Stack { tgid: 7, time: 0, pcs: vec![0x1010, 0x1018, 0x1020, 0, 0], ..Stack::default() };
        let mut names = Names { symbols: &mut symbols, target: None, time: None, of_stacks: true };
        names.prepare([Raw::Stack(stack().into()), Raw::Int(events::Int::new(1, 8, false))].into_iter());
        assert_eq!(symbols.prepared, [0x1010, 0x1018, 0x1020, 0x101f]);
    }
}
