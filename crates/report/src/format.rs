// SPDX-License-Identifier: Apache-2.0
//! Numbers, times and dates, formatted for people.

use quietwire_tester::is_bound;

/// Separator of groups of three digits, and of a number and its unit: a narrow no-break space.
pub(crate) const THIN: char = '\u{202f}';

/// Smallest number above zero that is printed without an exponent.
const PLAIN_MIN: f64 = 1e-9;

/// Formats a whole number in groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digits.len().saturating_sub(index).is_multiple_of(3) {
            text.push(THIN);
        }
        text.push(digit);
    }
    text
}

/// Formats a number, rounded to a whole one, in groups of three digits; 0 for a negative number.
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
pub(crate) fn rounded(value: f64) -> String {
    grouped(value.round() as u64)
}

/// Returns the decimals of a number below 1 that show two digits after its leading zeros.
#[expect(clippy::cast_possible_truncation, reason = "clamped to 12")]
fn decimals_below_one(size: f64) -> usize {
    let zeros = (-size.log10().floor()).clamp(1.0, 12.0) as usize;
    zeros.saturating_add(1)
}

/// Formats a number with about three significant digits, whole parts in groups. Numbers below [`PLAIN_MIN`] have an exponent, so that only
/// zero is printed as 0.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let size = value.abs();
    let sign = if value < 0.0 { "−" } else { "" };
    if size > 0.0 && size < PLAIN_MIN {
        return format!("{sign}{size:.1e}");
    }
    let decimals = if size >= 99.95 || size == 0.0 {
        0
    } else if size >= 9.995 {
        1
    } else if size >= 0.9995 {
        2
    } else if size >= 0.09995 {
        3
    } else {
        decimals_below_one(size)
    };
    let text = format!("{size:.decimals$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), grouped);
    if fraction.is_empty() {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    }
}

/// Formats a rate in millions of frames per second, without the unit.
pub(crate) fn mpps(rate_pps: f64) -> String {
    number(rate_pps / 1e6)
}

/// Formats a rate with a suitable unit.
pub(crate) fn rate(rate_pps: f64) -> String {
    let (value, unit) = if rate_pps >= 1e5 {
        (rate_pps / 1e6, "Mpps")
    } else if rate_pps >= 1e3 {
        (rate_pps / 1e3, "kpps")
    } else {
        (rate_pps, "pps")
    };
    format!("{}{THIN}{unit}", number(value))
}

/// Formats a number with its unit.
pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    format!("{}{THIN}{unit}", number(value))
}

/// Formats bits per second with a suitable unit.
pub(crate) fn bits(bps: f64) -> String {
    let (value, unit) = match bps {
        bps if bps >= 1e9 => (bps / 1e9, "Gbit/s"),
        bps if bps >= 1e6 => (bps / 1e6, "Mbit/s"),
        bps => (bps / 1e3, "kbit/s"),
    };
    with_unit(value, unit)
}

/// Formats a percentage, from percent.
pub(crate) fn percent(value: f64) -> String {
    let text = if (9.95..999.5).contains(&value) {
        format!("{value:.0}")
    } else {
        number(value)
    };
    format!("{text}{THIN}%")
}

/// Formats a loss ratio as a percentage. No loss and very little loss look different.
pub(crate) fn loss(ratio: f64) -> String {
    if ratio == 0.0 {
        "0".to_owned()
    } else {
        format!("{}{THIN}%", number(ratio * 100.0))
    }
}

/// Formats the loss that a goal allows.
pub(crate) fn allows(loss_ratio: f64) -> String {
    if loss_ratio == 0.0 {
        "no loss".to_owned()
    } else {
        // As written in the study file: 0.5 %, not 0.500 %. Ten digits hide the error of the multiplication.
        let percent = loss_ratio * 100.0;
        let rounded: f64 = format!("{percent:.9e}").parse().unwrap_or(percent);
        let text = if rounded < PLAIN_MIN {
            format!("{rounded:e}")
        } else {
            rounded.to_string()
        };
        format!("loss up to {text}{THIN}%")
    }
}

/// Formats a time, from nanoseconds, with a suitable unit.
pub(crate) fn time_ns(time_ns: f64) -> String {
    let (value, unit) = match time_ns {
        ns if ns >= 1e9 => (ns / 1e9, "s"),
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns if ns >= 1e3 => (ns / 1e3, "µs"),
        ns => (ns, "ns"),
    };
    format!("{}{THIN}{unit}", number(value))
}

/// Formats a time in nanoseconds with its sign.
pub(crate) fn signed_time_ns(ns: i64) -> String {
    let time = time_ns(ns.unsigned_abs() as f64);
    match ns.signum() {
        -1 => format!("−{time}"),
        1 => format!("+{time}"),
        _ => time,
    }
}

/// Formats a time, from nanoseconds, marked as an upper bound if too much of it may be latency of the tester.
pub(crate) fn latency_ns(latency_ns: f64, own_ns: Option<f64>) -> String {
    let time = time_ns(latency_ns);
    if own_ns.is_some_and(|own_ns| is_bound(latency_ns, own_ns)) {
        format!("<{THIN}{time}")
    } else {
        time
    }
}

/// Formats a duration in seconds.
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
pub(crate) fn duration_s(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    if whole < 60 {
        format!("{whole}{THIN}s")
    } else {
        format!("{}{THIN}min {}{THIN}s", whole / 60, whole % 60)
    }
}

/// Formats date and time in UTC, from nanoseconds since the Unix epoch.
pub(crate) fn date(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Formats date and time in UTC as ISO 8601 with microseconds, from nanoseconds since the Unix epoch.
pub(crate) fn iso(unix_ns: u64) -> String {
    let text = date(unix_ns).replacen(' ', "T", 1).replace(" UTC", "");
    format!("{text}.{:06}Z", unix_ns % 1_000_000_000 / 1000)
}

/// Returns year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Years start in March here, so that
/// the leap day is the last day of the year.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a u64 has nanoseconds for 213,503 days, and each difference is of a value and a part of it"
)]
fn civil(day: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // Days from 0000-03-01 to 1970-01-01.
    let day = day + 719_468;
    let era = day / DAYS_OF_400_YEARS;
    let of_era = day % DAYS_OF_400_YEARS;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, of_year - (153 * march_month + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_have_three_digits_and_thin_spaces() {
        let plain = |text: String| text.replace(THIN, "_");
        assert_eq!(plain(grouped(0)), "0");
        assert_eq!(plain(grouped(1_234_567)), "1_234_567");
        assert_eq!(plain(number(12_345.6)), "12_346");
        assert_eq!(plain(number(99.96)), "100");
        assert_eq!(plain(number(9.996)), "10.0");
        assert_eq!(plain(number(6.4)), "6.40");
        assert_eq!(plain(number(0.2314)), "0.231");
        assert_eq!(plain(number(0.000_012_34)), "0.000012");
        assert_eq!(plain(number(2e-9)), "0.0000000020");
        assert_eq!(plain(number(9.94e-10)), "9.9e-10");
        assert_eq!(plain(number(-3e-14)), "−3.0e-14");
        assert_eq!(plain(number(-2.5)), "−2.50");
        assert_eq!(plain(number(f64::NAN)), "–");
        assert_eq!(plain(rate(20_000.0)), "20.0_kpps");
        assert_eq!(plain(rate(6.4e6)), "6.40_Mpps");
        assert_eq!(plain(percent(12_900.0)), "12_900_%");
        assert_eq!(plain(percent(96.7)), "97_%");
        assert_eq!(plain(percent(3.61)), "3.61_%");
        assert_eq!(plain(loss(0.0)), "0");
        assert_eq!(plain(loss(0.000_001)), "0.00010_%");
        assert_eq!(plain(loss(2e-10)), "0.000000020_%");
        assert_eq!(plain(loss(3e-16)), "3.0e-14_%");
        assert_eq!(plain(allows(0.0)), "no loss");
        assert_eq!(plain(allows(0.005)), "loss up to 0.5_%");
        assert_eq!(plain(allows(0.29)), "loss up to 29_%");
        assert_eq!(plain(allows(1e-9)), "loss up to 0.0000001_%");
        assert_eq!(plain(allows(2.5e-16)), "loss up to 2.5e-14_%");
        assert_eq!(plain(time_ns(2_400.0)), "2.40_µs");
        assert_eq!(plain(time_ns(310_000.0)), "310_µs");
        assert_eq!(plain(duration_s(418.2)), "6_min 58_s");
        assert_eq!(plain(latency_ns(2_400.0, None)), "2.40_µs");
        assert_eq!(plain(latency_ns(2_400.0, Some(240.0))), "2.40_µs");
        assert_eq!(plain(latency_ns(2_400.0, Some(241.0))), "<_2.40_µs");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(iso(86_400_000_001_234), "1970-01-02T00:00:00.000001Z");
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_827_696_000_000_000), "2000-02-29 12:34:56 UTC");
        assert_eq!(date(1_795_132_799_000_000_000), "2026-11-19 23:59:59 UTC");
    }

    proptest! {
        #[test]
        fn days_follow_each_other(day in 0u64..200_000) {
            let (year, month, of_month) = civil(day);
            let next = civil(day + 1);
            prop_assert!((1..=12).contains(&month) && (1..=31).contains(&of_month));
            let follows = next == (year, month, of_month + 1)
                || next == (year, month + 1, 1) || next == (year + 1, 1, 1);
            prop_assert!(follows);
        }

        #[test]
        fn a_number_can_be_read_back_to_a_percent(value in 1e-9f64..1e12) {
            let read: f64 = number(value).replace(THIN, "").parse().unwrap();
            prop_assert!((read - value).abs() <= value * 0.051, "{} for {}", read, value);
        }

        #[test]
        fn a_small_number_is_not_printed_as_zero(exponent in -300f64..0.0) {
            let value = 10f64.powf(exponent);
            let read: f64 = number(value).parse().unwrap();
            prop_assert!((read - value).abs() <= value * 0.051, "{} for {}", read, value);
        }
    }
}
