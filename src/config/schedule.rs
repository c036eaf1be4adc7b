//! Cron schedules, and the longest time that they leave a filter without a build.

use std::time::Duration;

use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};

/// Parses 5 fields, or 6 with seconds first. Occurrences are in UTC.
///
/// # Errors
/// The text is not such an expression.
pub fn parse_schedule(text: &str) -> Result<Cron, CronError> {
    CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build().parse(text)
}

/// Years that are searched. Any eight consecutive years between 1904 and 2096 contain a 29 February and enough of each
/// weekday pattern.
const YEARS: i32 = 8;
/// A fixed start: the result must not change from day to day.
const FIRST_YEAR: i32 = 2024;

/// The longest time between two consecutive occurrences; `None` if there are none.
///
/// A cron expression without a year is a set of days times a set of times, and UTC has no shifted hours. So all gaps
/// are within one matching day or between days. A schedule of each second costs 86,400 steps and not 31 million per
/// year.
pub(super) fn longest_gap(schedule: &Cron) -> Option<Duration> {
    let start = midnight(NaiveDate::from_ymd_opt(FIRST_YEAR, 1, 1)?);
    let end = midnight(NaiveDate::from_ymd_opt(FIRST_YEAR + YEARS, 1, 1)?);
    let first = schedule.find_next_occurrence(&start, true).ok().filter(|first| *first < end)?;

    let mut longest = Duration::ZERO;
    let mut last_of_day = first;
    for next in schedule.iter_after(first).take_while(|next| next.date_naive() == first.date_naive()) {
        longest = longest.max(between(last_of_day, next));
        last_of_day = next;
    }
    let mut day = first.date_naive();
    while let Some(next) =
        midnight(day + Days::new(1)).le(&end).then(|| first_from(schedule, day + Days::new(1))).flatten()
    {
        longest = longest.max(between(midnight(day) + (last_of_day - midnight(first.date_naive())), next));
        day = next.date_naive();
    }
    Some(longest)
}

fn first_from(schedule: &Cron, day: NaiveDate) -> Option<DateTime<Utc>> {
    schedule.find_next_occurrence(&midnight(day), true).ok()
}

fn midnight(day: NaiveDate) -> DateTime<Utc> {
    day.and_time(NaiveTime::MIN).and_utc()
}

fn between(earlier: DateTime<Utc>, later: DateTime<Utc>) -> Duration {
    (later - earlier).to_std().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;

    fn gap(text: &str) -> Option<u64> {
        longest_gap(&parse_schedule(text).unwrap()).map(|gap| gap.as_secs())
    }

    #[test]
    fn longest_gaps_are_those_of_the_calendar() {
        assert_eq!(gap("0 2 * * *"), Some(DAY));
        assert_eq!(gap("*/5 * * * *"), Some(5 * MINUTE));
        assert_eq!(gap("* * * * * *"), Some(1));
        assert_eq!(gap("30 */10 * * * *"), Some(10 * MINUTE));
        assert_eq!(gap("*/7 * * * *"), Some(7 * MINUTE));
        assert_eq!(gap("* 9-17 * * *"), Some(15 * HOUR + MINUTE));
        assert_eq!(gap("0 9 * * MON-FRI"), Some(3 * DAY));
        assert_eq!(gap("0 0 1 * *"), Some(31 * DAY));
        assert_eq!(gap("0 0 31 * *"), Some(61 * DAY));
        assert_eq!(gap("0 0 29 2 *"), Some((4 * 365 + 1) * DAY));
    }

    #[test]
    fn a_schedule_that_never_comes_has_no_gap() {
        assert_eq!(gap("0 0 31 2 *"), None);
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in ["", "daily", "* * * *", "60 * * * *", "* * * * * * 2030"] {
            assert!(parse_schedule(text).is_err(), "{text}");
        }
    }
}
