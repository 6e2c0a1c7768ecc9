//! The format of an event: the file `format` in the event's directory in tracefs.
//!
//! ```text
//! ID: 316
//!         field:unsigned short common_type;       offset:0;       size:2; signed:0;
//!
//!         field:char prev_comm[16];       offset:8;       size:16;        signed:0;
//!         field:__data_loc char[] name;   offset:24;      size:4; signed:0;
//! ```
//!
//! A `__data_loc` member has 32 bits: the offset of the value in the record (low half) and the
//! length. The offset of `__rel_loc` counts from the end of the member.

/// Where the value of a member is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the member.
    Here,
    /// Elsewhere in the record, at an offset from its beginning.
    DataLoc,
    /// Elsewhere, at an offset from the end of the member.
    RelLoc,
}

/// A member of an event's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// `prev_comm`
    pub(crate) name: String,
    /// C type: `char [16]`, `struct page *`; `string` for a text that is stored elsewhere in the
    /// record.
    pub(crate) ty: String,
    /// Bytes from the beginning of the record.
    pub(crate) offset: u16,
    /// Bytes.
    pub(crate) size: u16,
    /// True if the kernel says that the type is signed.
    pub(crate) signed: bool,
    /// Where the value is stored.
    pub(crate) place: Place,
}

/// The format of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// The event's number, for perf.
    pub(crate) id: u64,
    /// The members, without those that all events have in common.
    pub(crate) fields: Vec<Field>,
}

impl Format {
    /// Reads the text of the file.
    pub(crate) fn parse(text: &str) -> Option<Format> {
        let id = text.lines().find_map(|l| l.strip_prefix("ID:"))?.trim().parse().ok()?;
        let fields = text.lines().filter_map(|l| l.trim_start().strip_prefix("field:")).filter_map(field);
        Some(Format { id, fields: fields.filter(|f| !f.name.starts_with("common_")).collect() })
    }
}

/// Name, type, offset and size of a member.
pub type EventMember = (String, String, u16, u16);

/// The number of an event, and its members, in the text of its format: for fuzzing.
pub fn event_format(text: &str) -> Option<(u64, Vec<EventMember>)> {
    let Format { id, fields } = Format::parse(text)?;
    Some((id, fields.into_iter().map(|f| (f.name, f.ty, f.offset, f.size)).collect()))
}

fn field(line: &str) -> Option<Field> {
    let mut parts = line.split(';');
    let declaration = parts.next()?.trim();
    let mut number = |key: &str| parts.next()?.trim().strip_prefix(key)?.parse::<u32>().ok();
    let (offset, size) = (number("offset:")?, number("size:")?);
    let signed = number("signed:") == Some(1);
    let (place, declaration) = match declaration.split_once(' ') {
        Some(("__data_loc", rest)) => (Place::DataLoc, rest),
        Some(("__rel_loc", rest)) => (Place::RelLoc, rest),
        _ => (Place::Here, declaration),
    };
    let (before, dims) = match declaration.find('[') {
        // `char[] name`: the brackets stand before the name.
        Some(at) if place != Place::Here => {
            let (ty, rest) = declaration.split_at(at);
            let (_, name) = rest.split_once(']')?;
            let ty = if ty.trim() == "char" { "string".to_string() } else { format!("{} []", ty.trim()) };
            return Some(Field {
                name: name.trim().into(),
                ty,
                offset: u16::try_from(offset).ok()?,
                size: u16::try_from(size).ok()?,
                signed,
                place,
            });
        }
        Some(at) => declaration.split_at(at),
        None => (declaration, ""),
    };
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let ty = before.trim_end_matches(word);
    let name = before.strip_prefix(ty).filter(|_| !ty.is_empty())?;
    let ty = ty.trim();
    Some(Field {
        name: name.into(),
        ty: if dims.is_empty() { ty.into() } else { format!("{ty} {}", array(dims, size)) },
        offset: u16::try_from(offset).ok()?,
        size: u16::try_from(size).ok()?,
        signed,
        place,
    })
}

/// The array's dimensions. Some kernels show the name of a constant; the length is then the size in
/// bytes.
fn array(dims: &str, size: u32) -> String {
    let inner = dims.trim_start_matches('[').split(']').next().unwrap_or("");
    match inner.parse::<u32>() {
        Ok(_) => dims.into(),
        Err(_) => format!("[{size}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 316\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:const struct page * page;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:40;\tsize:4;\tsigned:0;\n\
        \tfield:__rel_loc __u8[] bytes;\toffset:44;\tsize:4;\tsigned:0;\n\
        \tfield:u8 addr[LONG_NAME];\toffset:48;\tsize:6;\tsigned:0;\n\nprint fmt: \"field:none\"\n";

    #[test]
    fn members_have_their_types() {
        let format = Format::parse(SWITCH).unwrap();
        assert_eq!(format.id, 316);
        let all: Vec<(&str, &str, u16)> =
            format.fields.iter().map(|f| (&*f.name, &*f.ty, f.offset)).collect();
        assert_eq!(
            all,
            [
                ("prev_comm", "char [16]", 8),
                ("prev_pid", "pid_t", 24),
                ("page", "const struct page *", 32),
                ("name", "string", 40),
                ("bytes", "__u8 []", 44),
                ("addr", "u8 [6]", 48),
            ]
        );
        assert_eq!(format.fields[3].place, Place::DataLoc);
        assert_eq!(format.fields[4].place, Place::RelLoc);
        assert!(format.fields[1].signed && !format.fields[2].signed);
    }

    #[test]
    fn other_text_is_no_format() {
        assert_eq!(Format::parse(""), None);
        assert_eq!(Format::parse("ID: x\n"), None);
        assert_eq!(Format::parse("ID: 7\n\tfield:;\n\tfield:int;\n").map(|f| f.fields.len()), Some(0));
        // A character of several bytes before the name.
        let field = &Format::parse("ID: 7\nfield:é;offset:4;size:6;signed:0;").unwrap().fields[0];
        assert_eq!((&*field.ty, &*field.name), ("é", ""));
    }
}
