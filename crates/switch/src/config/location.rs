// SPDX-License-Identifier: Apache-2.0
//! Source locations of configuration settings, for messages.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use quietwire_base::locate::{key_of, line_of};

use crate::error::SwitchError;

/// Source location of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A request on the control socket.
    Request,
    /// A command-line option, with its dashes.
    Option(&'static str),
    /// A line of a file.
    File {
        /// Its path.
        path: Arc<Path>,
        /// Its line, from 1.
        line: usize,
        /// The table or key.
        key: &'static str,
    },
}

impl fmt::Display for Location {
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

impl Location {
    pub(crate) fn wrong(&self, what: impl Into<String>) -> SwitchError {
        SwitchError::Config {
            location: self.to_string(),
            what: what.into(),
        }
    }
}

/// A setting and its source location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The setting.
    pub value: T,
    /// Its source location.
    pub location: Location,
}

impl<T> Located<T> {
    /// Returns the same with a setting that copies share.
    pub(super) fn shared(self) -> Located<Arc<T>> {
        Located {
            value: Arc::new(self.value),
            location: self.location,
        }
    }
}

/// Reads a text file.
///
/// # Errors
/// [`SwitchError::Unreadable`].
pub(super) fn read_text(path: &Path) -> Result<String, SwitchError> {
    quietwire_base::read_text(path).map_err(|cause| SwitchError::Unreadable {
        path: path.to_owned(),
        cause: cause.to_string(),
    })
}

/// Converts an error of the TOML reader, whose own text has several lines and no file name.
pub(super) fn wrong(path: &Path, text: &str, error: &toml::de::Error) -> SwitchError {
    let mut location = path.display().to_string();
    if let Some(span) = error.span() {
        location.push_str(&format!(", line {}", line_of(text, span.start)));
        let way = key_of(text, &span);
        let key = way.rsplit('.').next().filter(|key| !key.is_empty());
        if let Some(key) = key {
            location.push_str(&format!(", key '{key}'"));
        }
    }
    SwitchError::Config {
        location,
        what: error.message().to_owned(),
    }
}
