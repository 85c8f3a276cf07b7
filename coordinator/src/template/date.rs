//! `strftime` in UTC, as far as chat templates use it.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The days of the week, from that of 1 January 1970 on.
const WEEKDAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// Writes `time` by `format`; directives that are not known stay as they are.
pub(super) fn strftime(format: &str, time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let days = seconds / SECONDS_PER_DAY;
    let second = seconds % SECONDS_PER_DAY;
    let (year, month, day) = civil(days);
    let (month_name, weekday) = (MONTHS[month - 1], WEEKDAYS[(days % 7) as usize]);
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let written = match letters.next() {
            Some('Y') => write!(text, "{year}"),
            Some('m') => write!(text, "{month:02}"),
            Some('d') => write!(text, "{day:02}"),
            Some('H') => write!(text, "{:02}", second / 3600),
            Some('M') => write!(text, "{:02}", second / 60 % 60),
            Some('S') => write!(text, "{:02}", second % 60),
            Some('B') => write!(text, "{month_name}"),
            Some('b') => write!(text, "{}", &month_name[..3]),
            Some('A') => write!(text, "{weekday}"),
            Some('a') => write!(text, "{}", &weekday[..3]),
            Some('%') | None => write!(text, "%"),
            Some(other) => write!(text, "%{other}"),
        };
        debug_assert!(written.is_ok(), "a string takes all that is written");
    }
    text
}

/// Year, month and day of the month, `days` after 1 January 1970.
fn civil(mut days: u64) -> (u64, usize, u64) {
    let mut year = 1970;
    while days >= days_of_year(year) {
        days -= days_of_year(year);
        year += 1;
    }
    let february = days_of_year(year) - 337;
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

fn days_of_year(year: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if leap { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64, format: &str) -> String {
        strftime(format, UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        let format = "%d %b %Y %A %H:%M:%S";
        assert_eq!(at(0, format), "01 Jan 1970 Thursday 00:00:00");
        assert_eq!(at(951_782_400, format), "29 Feb 2000 Tuesday 00:00:00");
        assert_eq!(at(951_868_799, format), "29 Feb 2000 Tuesday 23:59:59");
        assert_eq!(at(1_767_225_599, format), "31 Dec 2025 Wednesday 23:59:59");
        assert_eq!(
            at(1_767_225_600, "%Y-%m-%d %B %a"),
            "2026-01-01 January Thu"
        );
    }

    #[test]
    fn unknown_directives_stay() {
        assert_eq!(at(0, "100%% %q %"), "100% %q %");
    }
}
