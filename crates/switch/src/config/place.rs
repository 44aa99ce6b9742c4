// SPDX-License-Identifier: Apache-2.0
//! Where something of the configuration was written, for messages.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::SwitchError;

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A request on the control socket.
    Request,
    /// An option of the command line, with its dashes.
    Option(&'static str),
    /// A line of a file.
    File {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The table or key.
        key: &'static str,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request => write!(f, "the request"),
            Self::Option(option) => write!(f, "{option}"),
            Self::File { path, line, key } => {
                write!(f, "{}, line {line}, key '{key}'", path.display())
            }
        }
    }
}

impl Place {
    pub(crate) fn wrong(&self, what: impl Into<String>) -> SwitchError {
        SwitchError::Config {
            place: self.to_string(),
            what: what.into(),
        }
    }
}

/// What is asked for, and where that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    /// What is asked for.
    pub value: T,
    /// Where.
    pub place: Place,
}

/// The line of a text, from 1, that an octet is in.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    1 + text
        .bytes()
        .take(offset)
        .filter(|octet| *octet == b'\n')
        .count()
}

/// An error of the TOML reader: its own text has several lines and no file name.
pub(super) fn wrong(path: &Path, text: &str, error: &toml::de::Error) -> SwitchError {
    let mut place = path.display().to_string();
    if let Some(span) = error.span() {
        let line = line_of(text, span.start);
        place += &format!(", line {line}");
        let key = text
            .lines()
            .nth(line - 1)
            .and_then(|line| line.split_once('='))
            .map(|(key, _)| key.trim());
        if let Some(key) = key.filter(|key| !key.is_empty()) {
            place += &format!(", key '{key}'");
        }
    }
    SwitchError::Config {
        place,
        what: error.message().to_owned(),
    }
}
