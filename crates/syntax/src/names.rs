//! The built-in types of D.

/// The built-in typedefs. `string` is a keyword. `stack` is not listed, because it is also an
/// action.
const BUILTIN_TYPES: [&str; 25] = [
    "_Bool",
    "_symaddr",
    "_usymaddr",
    "dt_stack_t",
    "id_t",
    "int16_t",
    "int32_t",
    "int64_t",
    "int8_t",
    "intptr_t",
    "ipaddr_t",
    "pid_t",
    "ptrdiff_t",
    "size_t",
    "ssize_t",
    "u_longlong_t",
    "uchar_t",
    "uint16_t",
    "uint32_t",
    "uint64_t",
    "uint8_t",
    "uint_t",
    "uintptr_t",
    "ulong_t",
    "ushort_t",
];

/// True if `name` is a built-in typedef.
pub fn is_builtin_type(name: &str) -> bool {
    BUILTIN_TYPES.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(BUILTIN_TYPES.is_sorted());
        assert!(is_builtin_type("uint64_t"));
        assert!(!is_builtin_type("string_t"));
    }
}
