//! The Gregorian calendar from 1970 on, by UTC.

/// A day of the calendar; days are counted from 1970-01-01.
pub(crate) struct Date {
    year: u64,
    month: usize,
    day: u64,
    /// The first day of its month.
    pub(crate) month_begins: u64,
    /// The first day of the next one.
    pub(crate) month_ends: u64,
}

/// The date of a day.
pub(crate) fn date(day: u64) -> Date {
    const CYCLE_DAYS: u64 = 146_097; // Of 400 years, after which the calendar begins anew.
    let mut begins = day - day % CYCLE_DAYS;
    let mut year = 1970;
    while begins + days_of(year) <= day {
        begins += days_of(year);
        year += 1;
    }
    let february = if days_of(year) == 366 { 29 } else { 28 };
    let year = year + day / CYCLE_DAYS * 400;
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while month < lengths.len() - 1 && begins + lengths[month] <= day {
        begins += lengths[month];
        month += 1;
    }
    Date {
        year,
        month: month + 1,
        day: day - begins + 1,
        month_begins: begins,
        month_ends: begins + lengths[month],
    }
}

fn days_of(year: u64) -> u64 {
    if year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400) { 366 } else { 365 }
}

/// A time as people read it, from seconds since 1970.
///
/// ```
/// assert_eq!(weir_quota::utc(951_868_799), "2000-02-29 23:59:59 UTC");
/// ```
#[must_use]
pub fn utc(at_s: u64) -> String {
    let (date, second) = (date(at_s / 86_400), at_s % 86_400);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{:04}-{:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC", date.year, date.month, date.day)
}

/// The seconds since 1970 of a time that [`utc`] has made.
///
/// ```
/// assert_eq!(weir_quota::seconds_of_utc("2000-02-29 23:59:59 UTC"), Some(951_868_799));
/// ```
#[must_use]
pub fn seconds_of_utc(text: &str) -> Option<u64> {
    let number = |part: &str| part.parse::<u64>().ok();
    let (date_text, time) = text.strip_suffix(" UTC")?.split_once(' ')?;
    let mut parts = date_text.splitn(3, '-').map(number);
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let mut times = time.splitn(3, ':').map(number);
    let (hour, minute, second) = (times.next()??, times.next()??, times.next()??);
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut days: u64 = (1970..year).map(days_of).sum();
    for _ in 1..month {
        days = date(days).month_ends;
    }
    Some((days + day - 1) * 86_400 + hour * 3_600 + minute * 60 + second)
}
