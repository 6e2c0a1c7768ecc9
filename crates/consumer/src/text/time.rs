//! `%Y` and `%T`: nanoseconds since 1970 as local time.

/// A broken-down local time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Local {
    year: i64,
    /// From 0.
    month: usize,
    day: u32,
    /// From 0, Sunday.
    weekday: usize,
    hour: u32,
    minute: u32,
    second: u32,
    zone: String,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

fn name(names: &[&'static str], number: usize) -> &'static str {
    names.get(number).copied().unwrap_or("?")
}

/// Computed by the C library, which has the time zone. `None` for years that it cannot represent.
pub(super) fn local(nanoseconds: u64) -> Option<Local> {
    let seconds = (nanoseconds / 1_000_000_000) as _;
    // SAFETY: all-zero is a valid `tm` (integers and a null pointer).
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals of the right type.
    if unsafe { libc::localtime_r(&seconds, &mut tm) }.is_null() {
        return None;
    }
    let zone = if tm.tm_zone.is_null() {
        String::new()
    } else {
        // SAFETY: localtime_r sets tm_zone to a NUL-terminated string of the C library.
        unsafe { std::ffi::CStr::from_ptr(tm.tm_zone) }.to_string_lossy().into_owned()
    };
    Some(Local {
        year: i64::from(tm.tm_year) + 1900,
        month: tm.tm_mon as usize,
        day: tm.tm_mday as u32,
        weekday: tm.tm_wday as usize,
        hour: tm.tm_hour as u32,
        minute: tm.tm_min as u32,
        second: tm.tm_sec as u32,
        zone,
    })
}

impl Local {
    /// `%Y`: `1970 Jan  1 00:00:00`.
    pub(super) fn plain(&self) -> String {
        let Local { year, day, hour, minute, second, .. } = self;
        format!("{year} {} {day:>2} {hour:02}:{minute:02}:{second:02}", name(&MONTHS, self.month))
    }

    /// `%T`: `Thu, 01 Jan 1970 00:00:00 UTC`.
    pub(super) fn rfc822(&self) -> String {
        let Local { year, day, hour, minute, second, zone, .. } = self;
        let (weekday, month) = (name(&DAYS, self.weekday), name(&MONTHS, self.month));
        format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} {zone}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // row conversion.Y, conversion.T
    #[test]
    fn times_are_printed_in_dtrace_s_format() {
        let epoch = Local {
            year: 1970,
            month: 0,
            day: 1,
            weekday: 4,
            hour: 0,
            minute: 0,
            second: 0,
            zone: "UTC".into(),
        };
        assert_eq!(epoch.plain(), "1970 Jan  1 00:00:00");
        assert_eq!(epoch.rfc822(), "Thu, 01 Jan 1970 00:00:00 UTC");
    }

    #[test]
    fn the_epoch_is_within_a_day_of_1970() {
        let year = local(0).unwrap().year;
        assert!(year == 1969 || year == 1970);
    }
}
