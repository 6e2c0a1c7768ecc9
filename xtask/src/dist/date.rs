//! The time of a release in the forms that packages have it in. All are UTC.

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// Year, month (from 1) and day of a day since 1970, in the Gregorian calendar.
fn civil(day: u64) -> (u64, u64, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut left) = (1970, day);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    (year, month, left + 1)
}

fn clock(time: u64) -> String {
    let second = time % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// `2026-11-29T13:00:00Z` (RFC 3339) of seconds since 1970.
pub(crate) fn iso(time: u64) -> String {
    let (year, month, day) = civil(time / 86_400);
    format!("{year:04}-{month:02}-{day:02}T{}Z", clock(time))
}

/// `Sun, 29 Nov 2026 13:00:00 +0000` (RFC 5322) of seconds since 1970.
pub(crate) fn mail(time: u64) -> String {
    let days = time / 86_400;
    let (year, month, day) = civil(days);
    let weekday = WEEKDAYS.get(days as usize % 7).unwrap_or(&"");
    let month = MONTHS.get(month as usize - 1).unwrap_or(&"");
    format!("{weekday}, {day:02} {month} {year:04} {} +0000", clock(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // Each by `date -u -d @N`.
        for (time, there, mailed) in [
            (0, "1970-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 +0000"),
            (951_782_399, "2000-02-28T23:59:59Z", "Mon, 28 Feb 2000 23:59:59 +0000"),
            (951_782_400, "2000-02-29T00:00:00Z", "Tue, 29 Feb 2000 00:00:00 +0000"),
            (1_735_689_599, "2024-12-31T23:59:59Z", "Tue, 31 Dec 2024 23:59:59 +0000"),
            (1_795_957_200, "2026-11-29T13:00:00Z", "Sun, 29 Nov 2026 13:00:00 +0000"),
        ] {
            assert_eq!((iso(time).as_str(), mail(time).as_str()), (there, mailed));
        }
    }
}
