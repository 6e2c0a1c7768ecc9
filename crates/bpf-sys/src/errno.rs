//! Error numbers of the kernel by name, for crates that make no system calls of their own, and
//! their text.

pub use libc::{
    E2BIG, EADDRNOTAVAIL, EBUSY, EILSEQ, EINTR, EINVAL, ENODEV, ENOENT, ENOMEM, EOPNOTSUPP, EPERM, ESRCH,
};

/// The kernel's own "not supported", which the C library does not define.
pub const ENOTSUPP: i32 = 524;

/// The C library's text for an error number, and ours for the kernel's own.
pub fn text(errno: i32) -> String {
    if errno == ENOTSUPP {
        return "Not supported by the kernel (ENOTSUPP)".into();
    }
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    match text.rfind(" (os error") {
        Some(end) => text.get(..end).unwrap_or_default().to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_number_has_a_text_too() {
        assert_eq!(text(ENOTSUPP), "Not supported by the kernel (ENOTSUPP)");
        assert_eq!(text(EPERM), "Operation not permitted");
    }
}
