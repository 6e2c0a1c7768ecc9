//! `-h` and `-G`: what programs with probes are built with. The options are those of DTrace, and of
//! the `dtrace` of SystemTap, which build systems on Linux call.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use dtrace::diagnostics::{control, system_text};
use dtrace::{Macros, Processor, ProviderDefinitions, processor_of, processor_of_compiler};

use crate::command::{Command, Mode, Named, file_of};
use crate::{status, to_stderr};

fn complain(text: impl std::fmt::Display) {
    to_stderr(format!("dtrace: {text}\n"));
}

/// Writes the header or the object; the exit status.
pub(crate) fn write(command: &Command) -> u8 {
    let (letter, extension) = match command.mode {
        Mode::Header => ('h', "h"),
        _ => ('G', "o"),
    };
    let scripts: Vec<&Named> = command.programs.iter().filter(|p| matches!(p, Named::File(_))).collect();
    let output = match (&command.output, scripts.as_slice()) {
        (_, []) => Err("requires a script: -s file.d".to_string()),
        (Some(path), _) => Ok(file_of(path)),
        (None, [Named::File(path)]) => default_output(path, extension).ok_or_else(|| {
            "requires an output file (-o) if the name of the script does not end with .d".into()
        }),
        (None, _) => Err("requires an output file (-o) if multiple scripts are specified".into()),
    };
    let output = match output {
        Ok(output) => output,
        Err(e) => {
            complain(format!("-{letter} {e}"));
            return status::USAGE.code;
        }
    };
    match written(command, &scripts, &output) {
        Ok(()) => status::SUCCESS.code,
        Err(messages) => {
            messages.into_iter().for_each(complain);
            status::FAILURE.code
        }
    }
}

/// In the current directory, as the original has it: `dir/prov.d` is `prov.h`.
fn default_output(script: &str, extension: &str) -> Option<PathBuf> {
    let script = file_of(script);
    let named = script.extension().is_some_and(|e| e == "d");
    named.then(|| Path::new(script.file_name().unwrap_or_default()).with_extension(extension))
}

fn written(command: &Command, scripts: &[&Named], output: &Path) -> Result<(), Vec<String>> {
    let sources = scripts.iter().map(|s| s.read()).collect::<Result<Vec<_>, _>>().map_err(|e| vec![e])?;
    let macros = match command.mode {
        Mode::Header => Macros { name: "dtrace".into(), args: command.operands.clone(), target: 0 },
        // The operands are the objects.
        _ => Macros { name: "dtrace".into(), ..Macros::default() },
    };
    // The header of the standard output has the name that its file would have.
    let is_stdout = output == Path::new("-");
    let of_script = scripts.iter().find_map(|s| match s {
        Named::File(path) => default_output(path, "h"),
        Named::Text(..) | Named::Stored(..) => None,
    });
    let file = if is_stdout { of_script.unwrap_or_else(|| "stdout.h".into()) } else { output.into() };
    let definitions = ProviderDefinitions::read(&sources, &macros, &command.options)
        .map_err(|e| e.messages(command.options.errtags))?;
    let shown = match is_stdout {
        true => "the standard output".to_string(),
        false => control::name_text(&output.to_string_lossy()).into_owned(),
    };
    let bytes = match command.mode {
        Mode::Header => definitions.header(&file.to_string_lossy()).into_bytes(),
        _ => {
            let compiler = std::env::var("CC").unwrap_or_default();
            let machine = machine(&command.operands, &compiler).map_err(|e| vec![e])?;
            definitions.object(machine).map_err(|e| vec![format!("failed to write {shown}: {e}")])?
        }
    };
    let written = match is_stdout {
        true => {
            let mut out = std::io::stdout().lock();
            out.write_all(&bytes).and_then(|()| out.flush())
        }
        false => fs::write(output, bytes),
    };
    written.map_err(|e| vec![format!("failed to write {shown}: {}", system_text(&e))])
}

/// The machine of the objects; without any, that of the compiler. What is no object (libtool's
/// files) says nothing.
fn machine(objects: &[String], compiler: &str) -> Result<Processor, String> {
    let mut all = Vec::new();
    for object in objects {
        let mut head = Vec::new();
        let read = fs::File::open(file_of(object)).and_then(|f| f.take(64).read_to_end(&mut head));
        read.map_err(|e| format!("failed to open {}: {}", control::name_text(object), system_text(&e)))?;
        all.extend(processor_of(&head).map(|machine| (machine, object)));
    }
    let Some((first, of)) = all.first() else {
        return Ok(processor_of_compiler(compiler).unwrap_or(Processor::NATIVE));
    };
    match all.iter().find(|(machine, _)| machine != first) {
        None => Ok(*first),
        Some((_, other)) => {
            let (of, other) = (control::name_text(of), control::name_text(other));
            Err(format!("{of} and {other} are objects of different machines"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_has_the_name_of_the_script_in_the_current_directory() {
        assert_eq!(default_output("/a/b.c.d", "h"), Some("b.c.h".into()));
        assert_eq!(default_output("x", "h"), None);
        assert_eq!(default_output("x.D", "o"), None);
    }
}
