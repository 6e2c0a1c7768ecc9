//! A compiled program, and the image that the kernel loads.

use bpf_codegen::emit::Code;
use bpf_codegen::mir::MapRef;
use bpf_codegen::{CodegenError, Result};
use bpf_sys::load::{ProgramImage, SourceLine, Subprogram};
use bpf_sys::{AttachType, ProgKind};
use diagnostics::{SourceMap, Span};

/// A compiled program, before its maps are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The name in the kernel's lists.
    pub name: String,
    /// The program's kind.
    pub kind: ProgKind,
    /// The attach type.
    pub attach: AttachType,
    /// BTF id of the attach target.
    pub attach_btf_id: u32,
    /// The program may sleep.
    pub sleepable: bool,
    /// The code.
    pub code: Code,
    /// The content of the program's table, a read-only array map of one element. `None` when it
    /// needs no table.
    pub table: Option<Vec<u8>>,
}

impl Compiled {
    /// The image for the kernel. `fd` resolves the maps. `sources` has the texts from which lines
    /// are quoted.
    pub fn image(
        &self,
        fd: impl Fn(MapRef) -> Option<i32>,
        sources: Option<&SourceMap>,
    ) -> Result<ProgramImage> {
        let mut image = ProgramImage::new(&self.name, self.kind, self.code.insns.clone());
        image.attach = self.attach;
        image.attach_btf_id = self.attach_btf_id;
        image.sleepable = self.sleepable;
        for (at, map) in &self.code.relocs {
            let Some(fd) = fd(*map) else {
                return Err(CodegenError { span: None, message: format!("{}: no map {map:?}", self.name) });
            };
            if !image.relocate(*at, fd) {
                return Err(CodegenError { span: None, message: format!("no map reference at {at}") });
            }
        }
        image.copies.clone_from(&self.code.copies);
        if self.code.funcs.len() > 1 {
            image.funcs = self
                .code
                .funcs
                .iter()
                .map(|f| Subprogram {
                    name: f.name.clone(),
                    start: f.start,
                    params: f.params.clone(),
                    global: f.global || f.start == 0,
                })
                .collect();
        }
        if let Some(map) = sources {
            image.lines = self.code.lines.iter().map(|(at, span)| (*at, source_line(map, *span))).collect();
        }
        Ok(image)
    }
}

/// Source lines longer than this are shortened for the kernel.
const LINE: usize = 400;

fn source_line(map: &SourceMap, span: Span) -> SourceLine {
    let (line, column) = map.line_column(span.file, span.start);
    let (mut file, shown) = map.line_origin(span.file, line);
    if file.is_empty() {
        // The same name as in messages of the compiler.
        file = "command line".into();
    }
    // A script in one line has every statement on that line, so only the text from this statement
    // on is quoted.
    let text = match map.line(span.file, line) {
        all if all.len() <= LINE => all.to_owned(),
        _ => map.snippet(span).lines().next().unwrap_or("").chars().take(LINE).collect(),
    };
    SourceLine { file, line: shown, column, text }
}

/// True where another firing of the program may preempt it on its CPU, so that the program's stack
/// must not be in per-CPU memory: uprobes, and single kprobes, which are loaded the same way.
///
/// Kernels from 6.13 give programs of these kinds a *private stack* in per-CPU memory, on the
/// assumption that no other firing runs in between. Uprobe programs of two threads can preempt each
/// other on one CPU, and each would then read the other's spilled registers: wrong arguments,
/// records that are never committed, or even an invalid pointer. A program with a tail call gets no
/// private stack. So such a program contains a tail call into an empty table. The call is on the
/// path where the session is not active, so it costs nothing.
pub fn must_avoid_private_stack(kind: ProgKind, attach: AttachType) -> bool {
    kind == ProgKind::Kprobe && !matches!(attach, AttachType::KprobeMulti | AttachType::KprobeSession)
}
