// SPDX-License-Identifier: Apache-2.0
//! Parsing of the command line. Every refused value has a cure, and help that cannot be written is a failure.

use std::error::Error as _;
use std::io::{ErrorKind, Write as _, stdout};
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};

use crate::exit::{self, FAILED};
use crate::renamed::renamed;

/// Parses the command line. Otherwise prints help, version or an error, and returns the exit code.
pub(crate) fn parse<C: Parser>() -> Result<C, ExitCode> {
    C::try_parse().map_err(|error| end(&with_tip::<C>(error)))
}

/// Prints help, version or an error.
fn end(error: &clap::Error) -> ExitCode {
    match error.print().and_then(|()| stdout().flush()) {
        Err(cause) if !error.use_stderr() && cause.kind() != ErrorKind::BrokenPipe => {
            let text = "cannot write the result to standard output";
            exit::report(&anyhow::Error::new(cause).context(text))
        }
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(FAILED)),
    }
}

/// Adds the cure to an error that has none.
fn with_tip<C: CommandFactory>(error: clap::Error) -> clap::Error {
    let (mut error, range) = without_range::<C>(error);
    let tip = match renamed(&error) {
        Some((old, new)) => {
            // clap may suggest another value.
            error.remove(ContextKind::SuggestedValue);
            Some(format!("'{old}' is now '{new}'"))
        }
        None => range.or_else(|| cure(&error).map(str::to_owned)),
    };
    if let Some(tip) = tip {
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![tip.into()]),
        );
    }
    error
}

/// Removes the range of a number from an error, where clap writes it like Rust (`0 is not in 1..=65535`). Returns the cure, which has it in
/// words.
fn without_range<C: CommandFactory>(error: clap::Error) -> (clap::Error, Option<String>) {
    let Some(cure) = error
        .source()
        .and_then(|source| within_range(&source.to_string()))
    else {
        return (error, None);
    };
    // The source of an error cannot be changed.
    let mut same: clap::Error = clap::Error::new(error.kind()).with_cmd(&C::command());
    for (kind, value) in error.context() {
        same.insert(kind, value.clone());
    }
    (same, Some(cure))
}

/// Returns the cure for a number out of range, given the message of clap. `None`: the message has no range.
fn within_range(message: &str) -> Option<String> {
    let (_, range) = message.split_once(" is not in ")?;
    let (first, last) = range.split_once("..=")?;
    let is_number = |text: &str| text.parse::<i64>().is_ok();
    let is_range = is_number(first) && is_number(last);
    is_range.then(|| format!("use a number from {first} to {last}"))
}

/// Returns the cure for a value that a parser of a library refuses. Its message names the problem only.
fn cure(error: &clap::Error) -> Option<&'static str> {
    let source = error.source()?;
    if let Some(number) = source.downcast_ref::<ParseIntError>() {
        let is_large = *number.kind() == IntErrorKind::PosOverflow;
        return Some(match is_large {
            true => "use a smaller number",
            false => "use a whole number, such as 10",
        });
    }
    if source.is::<ParseFloatError>() {
        return Some("use a number, such as 0.95");
    }
    if source.is::<ipnet::AddrParseError>() {
        return Some("use ADDRESS/LENGTH, such as 192.0.2.0/24 or 2001:db8::/32");
    }
    let address = source.downcast_ref::<AddrParseError>()?.to_string();
    Some(if address.contains("socket") {
        "use ADDRESS:PORT, such as 192.0.2.1:80 or [2001:db8::1]:80"
    } else if address.contains("IPv4") {
        "use an IPv4 address, such as 192.0.2.1"
    } else if address.contains("IPv6") {
        "use an IPv6 address, such as 2001:db8::1"
    } else {
        "use an IPv4 or IPv6 address, such as 192.0.2.1 or 2001:db8::1"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;

    fn error_of(words: &str) -> String {
        let words = ["quietwire"].into_iter().chain(words.split(' '));
        with_tip::<Cli>(Cli::try_parse_from(words).unwrap_err()).to_string()
    }

    #[test]
    fn a_refused_value_has_a_cure() {
        for (words, tip) in [
            ("generate --flows x", "use a whole number"),
            (
                "generate --flows 99999999999999999999",
                "use a smaller number",
            ),
            ("compare a b --confidence x", "use a number"),
            ("application echo --address 192.0.2.1", "use ADDRESS:PORT"),
            (
                "application iperf --address x",
                "use an IPv4 or IPv6 address",
            ),
            ("switch add route 10.0.0.0/99", "use ADDRESS/LENGTH"),
            (
                "switch add interface i --address 10.0.0.1",
                "use ADDRESS/LENGTH",
            ),
            ("application iperf --port 0", "use a number from 1 to 65535"),
            ("generate --attempts 11", "use a number from 1 to 10"),
        ] {
            let error = error_of(words);
            assert!(error.contains(&format!("tip: {tip}")), "{words}: {error}");
            let is_plain = !error.contains("..=") && error.contains("--help");
            assert!(is_plain, "{words}: {error}");
        }
        // Parsers of this repository name the cure themselves.
        let error = error_of("generate --rate x");
        assert!(
            !error.contains("tip:") && error.contains("such as"),
            "{error}"
        );
    }
}
