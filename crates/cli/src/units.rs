// SPDX-License-Identifier: Apache-2.0
//! Parsers of rates, durations, frame sizes and modes.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use quietwire_base::Seccomp;
use quietwire_tester::connections::RATE_MAX;
use quietwire_tester::{FrameSizes, LOW_RATE_PPS_MAX, OFFERED_RATE_PPS_MAX};

/// Returns the parser of `--seccomp` by name.
pub(crate) fn seccomp_values() -> impl TypedValueParser<Value = Seccomp> {
    let value = |mode: Seccomp| PossibleValue::new(mode.name()).help(mode.summary());
    PossibleValuesParser::new(Seccomp::ALL.map(value)).try_map(|name| name.parse::<Seccomp>())
}

/// A requested rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// Frames per second, summed over directions.
    PacketsPerSecond(f64),
    /// The tester's highest rate.
    Max,
}

/// Parses `250000`, `250k`, `1.5M`, `2G` or `max`.
pub(crate) fn parse_rate(text: &str) -> Result<Rate, String> {
    if text == "max" {
        return Ok(Rate::Max);
    }
    parse_pps(text)
        .map(Rate::PacketsPerSecond)
        .map_err(|error| error + ", or max")
}

/// Parses `250000`, `250k`, `1.5M` or `2G`.
pub(crate) fn parse_pps(text: &str) -> Result<f64, String> {
    match scaled(text) {
        Some(rate) if rate > 0.0 && rate <= OFFERED_RATE_PPS_MAX => Ok(rate),
        _ => Err(
            "a rate is a number of frames per second above 0 and at most 10G, such as 250000, 250k or 1.5M"
                .to_owned(),
        ),
    }
}

/// Parses `1000` or `10k`: whole frames per second. The configuration of the switch checks the range.
pub(crate) fn parse_frame_rate(text: &str) -> Result<u32, String> {
    match scaled(text) {
        Some(rate)
            if (0.0..=f64::from(u32::MAX)).contains(&rate)
                && (rate - rate.round()).abs() < 1e-6 =>
        {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the guard checks the range"
            )]
            let rate = rate.round() as u32;
            Ok(rate)
        }
        _ => Err(
            "a rate is a whole number of frames per second, at most 4G, such as 1000 or 10k"
                .to_owned(),
        ),
    }
}

/// Parses `1000`, `300k` or `0.5`: conversations per second.
pub(crate) fn parse_connection_rate(text: &str) -> Result<f64, String> {
    match scaled(text) {
        Some(rate) if rate > 0.0 && rate <= RATE_MAX => Ok(rate),
        _ => Err(
            "a rate is a number of conversations per second above 0 and at most 100M, such as 1000 or 300k"
                .to_owned(),
        ),
    }
}

/// Parses `5` or `0.5k`, from 0 to the highest rate of a low-rate stream.
pub(crate) fn parse_low_rate(text: &str) -> Result<f64, String> {
    match scaled(text) {
        Some(rate) if (0.0..=LOW_RATE_PPS_MAX).contains(&rate) => Ok(rate),
        _ => Err(format!(
            "the rate of a low-rate stream is 0 to {LOW_RATE_PPS_MAX} frames per second, such as 5 or 1k"
        )),
    }
}

/// Parses a number with an optional SI prefix.
fn scaled(text: &str) -> Option<f64> {
    let prefixes = [('k', 1e3), ('K', 1e3), ('M', 1e6), ('G', 1e9)];
    let mut prefixes = prefixes.into_iter();
    let prefixed = prefixes.find_map(|(prefix, factor)| Some((text.strip_suffix(prefix)?, factor)));
    let (number, factor) = prefixed.unwrap_or((text, 1.0));
    Some(number.parse::<f64>().ok()? * factor)
}

/// Longest accepted duration: one day.
const DURATION_MAX_S: f64 = 86_400.0;

/// Parses `10s`, `500ms`, `2m` or a plain number of seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, factor) = if let Some(number) = text.strip_suffix("ms") {
        (number, 1e-3)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, 1.0)
    } else if let Some(number) = text.strip_suffix('m') {
        (number, 60.0)
    } else {
        (text, 1.0)
    };
    match number.parse::<f64>().map(|value| value * factor) {
        Ok(seconds) if (0.0..=DURATION_MAX_S).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(
            "a duration is a number with ms, s or m, from 0 to a day, such as 500ms or 10s"
                .to_owned(),
        ),
    }
}

/// Parses a duration like [`parse_duration`], but refuses 0.
pub(crate) fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("must be longer than 0".to_owned()),
        duration => Ok(duration),
    }
}

/// Parses a path. A relative path is relative to the current directory of the command.
pub(crate) fn parse_path(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|error| error.to_string())
}

/// Parses `64` to `9000`, or `imix`.
pub(crate) fn parse_frame_sizes(text: &str) -> Result<FrameSizes, String> {
    if text == "imix" {
        return Ok(FrameSizes::Imix);
    }
    match text.parse() {
        Ok(size @ 64..=9000) => Ok(FrameSizes::Fixed(size)),
        _ => Err("a frame size is 64 to 9000 octets with FCS, or imix".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_may_write_units() {
        assert_eq!(parse_rate("1.5M"), Ok(Rate::PacketsPerSecond(1.5e6)));
        assert_eq!(parse_rate("250k"), Ok(Rate::PacketsPerSecond(250e3)));
        assert_eq!(parse_rate("max"), Ok(Rate::Max));
        assert_eq!(parse_pps("8M"), Ok(8e6));
        assert!(parse_pps("8 Mpps").is_err());
        for (text, rate) in [("0", 0.0), ("5", 5.0), ("0.5k", 500.0), ("1k", 1000.0)] {
            assert_eq!(parse_low_rate(text), Ok(rate), "{text}");
        }
        for (text, rate) in [
            ("1", 1),
            ("1000", 1000),
            ("1.61k", 1610),
            ("0.161k", 161),
            ("4G", 4_000_000_000),
        ] {
            assert_eq!(parse_frame_rate(text), Ok(rate), "{text}");
        }
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_frame_sizes("imix"), Ok(FrameSizes::Imix));
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(parse_positive_duration("0s").is_err());
        for text in ["", "0", "-1", "nan", "inf", "M", "1x", "11G", "1e30"] {
            assert!(parse_rate(text).is_err(), "{text}");
            assert!(parse_pps(text).is_err(), "{text}");
        }
        for text in ["", "-1", "0.5", "1.0005k", "nan", "max", "5G"] {
            assert!(parse_frame_rate(text).is_err(), "{text}");
        }
        for text in ["", "-1", "nan", "max", "1001", "1.1k", "1M"] {
            assert!(parse_low_rate(text).is_err(), "{text}");
        }
        for text in ["", "-1s", "1h", "nan", "1e9s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in ["63", "9001", "-64", "IMIX", ""] {
            assert!(parse_frame_sizes(text).is_err(), "{text}");
        }
    }
}
