// SPDX-License-Identifier: Apache-2.0
//! Method, goals and keys on the command line.

use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use quietwire_study::{MeasuredMethod, measured_methods};

/// `KEY=VALUE` or `SECTION.KEY=VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::commands::measure) struct Assignment {
    pub(in crate::commands::measure) section: Option<String>,
    pub(in crate::commands::measure) key: String,
    pub(in crate::commands::measure) value: String,
}

/// `NAME=RATIO`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::commands::measure) struct NamedGoal {
    pub(in crate::commands::measure) name: String,
    pub(in crate::commands::measure) loss_ratio: f64,
}

/// Returns true if the text is a bare key of TOML.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// Converts a value to TOML. Numbers, booleans and lists stay unchanged, any other value becomes a string.
fn written(value: &str) -> String {
    let is_literal = value.parse::<f64>().is_ok()
        || ["true", "false"].contains(&value)
        || (value.starts_with('[') && value.ends_with(']'))
        || (value.starts_with('"') && value.ends_with('"') && value.len() > 1);
    if is_literal {
        value.to_owned()
    } else {
        format!("{value:?}")
    }
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((path, value)) = text.split_once('=') else {
            return Err("expected KEY=VALUE".to_owned());
        };
        let (section, key) = match path.split_once('.') {
            Some((section, key)) => (Some(section.to_owned()), key),
            None => (None, path),
        };
        if !is_plain(key) || !section.as_deref().is_none_or(is_plain) || value.contains('\n') {
            return Err(format!(
                "'{path}' is not a key (use KEY=VALUE or SECTION.KEY=VALUE)"
            ));
        }
        Ok(Self {
            section,
            key: key.to_owned(),
            value: written(value),
        })
    }
}

impl FromStr for NamedGoal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a goal (use NAME=RATIO, such as PDR=0.0001)");
        let (name, ratio) = text.split_once('=').ok_or_else(wrong)?;
        let loss_ratio: f64 = ratio.parse().map_err(|_| wrong())?;
        if name.is_empty() || !loss_ratio.is_finite() {
            return Err(wrong());
        }
        Ok(Self {
            name: name.to_owned(),
            loss_ratio,
        })
    }
}

/// Returns the parser of METHOD: the names of all methods, which the study crate lists.
pub(in crate::commands::measure) fn method_parser()
-> impl TypedValueParser<Value = &'static MeasuredMethod> {
    let values = measured_methods().map(|method| PossibleValue::new(method.name));
    PossibleValuesParser::new(values).try_map(|name| {
        let is_one = |method: &&MeasuredMethod| method.name == name;
        measured_methods().find(is_one).ok_or("unknown method")
    })
}
