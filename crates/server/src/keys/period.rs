//! The time a budget is for.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The time a budget is for. Periods begin at UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    Hour,
    Day,
    /// A month of the calendar.
    Month,
    /// All time.
    #[default]
    Ever,
}

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

impl Period {
    /// Every period.
    pub const ALL: [Period; 4] = [Period::Hour, Period::Day, Period::Month, Period::Ever];

    /// As users write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Period::Hour => "hour",
            Period::Day => "day",
            Period::Month => "month",
            Period::Ever => "ever",
        }
    }

    /// The name of the period that a moment lies in.
    pub(crate) fn at(self, unix_ms: u64) -> String {
        let (year, month, day) = date(unix_ms / DAY_MS);
        match self {
            Period::Hour => format!("{year:04}-{month:02}-{day:02}T{:02}", unix_ms % DAY_MS / HOUR_MS),
            Period::Day => format!("{year:04}-{month:02}-{day:02}"),
            Period::Month => format!("{year:04}-{month:02}"),
            Period::Ever => "ever".to_owned(),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Period::ALL.into_iter().find(|period| period.as_str() == word);
        found.ok_or_else(|| format!("unknown period `{word}`; expected one of hour, day, month, ever"))
    }
}

/// The date of a day since 1 January 1970, counted month by month.
fn date(mut day: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // Whole spans of 400 years have the same number of days.
    const SPAN_DAYS: u64 = 146_097;
    let mut year = 1970 + day / SPAN_DAYS * 400;
    day %= SPAN_DAYS;
    loop {
        let days = if is_leap(year) { 366 } else { 365 };
        if day < days {
            break;
        }
        (day, year) = (day - days, year + 1);
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        (day, month) = (day - days, month + 1);
    }
    (year, month, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_lie_in_their_periods() {
        let check = |ms: u64, hour: &str| {
            assert_eq!(Period::Hour.at(ms), hour);
            assert_eq!(Period::Day.at(ms), hour[..10]);
            assert_eq!(Period::Month.at(ms), hour[..7]);
            assert_eq!(Period::Ever.at(ms), "ever");
        };
        check(0, "1970-01-01T00");
        check(951_782_400_000, "2000-02-29T00");
        check(951_868_799_999, "2000-02-29T23");
        check(951_868_800_000, "2000-03-01T00");
        check(1_735_689_599_999, "2024-12-31T23");
        check(1_795_000_000_000, "2026-11-18T11");
        check(4_107_542_400_000, "2100-03-01T00");
        check(13_574_563_200_000, "2400-02-29T00");
    }
}
