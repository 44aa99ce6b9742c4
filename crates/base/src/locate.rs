// SPDX-License-Identifier: Apache-2.0
//! Location of a fault in a TOML file: line, column and key.

// Text from outside: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::text::read_text;

/// A fault of a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file could not be read.
    #[error("the file {} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The contents of the file are wrong.
    #[error("{}:{line}:{column}: {}{message}", path.display(), KeyPrefix(key))]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// The key as a path, `search.goal[1].loss-ratio`; empty if it is not known.
        key: String,
        /// The problem and its cure.
        message: String,
    },
}

struct KeyPrefix<'a>(&'a str);

impl fmt::Display for KeyPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, "{}: ", self.0)
        }
    }
}

/// One step of the path to a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum At {
    /// A key of a table.
    Key(&'static str),
    /// An element of an array, from 0.
    Index(usize),
}

/// A fault in a file that could be read.
#[derive(Debug)]
pub struct LocatedFault {
    /// The path to the value.
    pub path: Vec<At>,
    /// The problem and its cure.
    pub message: String,
}

/// Reads the text of a file.
///
/// # Errors
/// [`FileError::Unreadable`].
pub fn read(path: &Path) -> Result<String, FileError> {
    read_text(path).map_err(|error| FileError::Unreadable {
        path: path.to_owned(),
        error,
    })
}

/// Returns the error for a fault that the TOML reader found.
#[must_use]
pub fn of_toml(text: &str, path: &Path, error: &toml::de::Error) -> FileError {
    let span = error.span();
    let key = span
        .as_ref()
        .map_or_else(String::new, |span| key_of(text, span));
    let offset = span.map_or(0, |span| span.start);
    wrong(text, path, offset, key, error.message().to_owned())
}

/// Returns the path of the key whose name or value contains `span`, like `search.goal[1].loss-ratio`; empty if there is no such key, or the
/// text is not TOML.
#[must_use]
pub fn key_of(text: &str, span: &Range<usize>) -> String {
    DeTable::parse(text).map_or_else(|_| String::new(), |table| key_at(table.get_ref(), span))
}

/// Returns the line of an octet of a text, from 1.
#[must_use]
pub fn line_of(text: &str, offset: usize) -> usize {
    let octets = text.as_bytes();
    let before = octets.get(..offset).unwrap_or(octets);
    let lines = before.iter().filter(|octet| **octet == b'\n').count();
    lines.saturating_add(1)
}

/// Starts of the lines of a text, for the lines of many of its octets: [`line_of`] reads the text for each.
#[derive(Clone, Debug)]
pub struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    /// Finds the lines of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let octets = text.bytes().enumerate();
        let ends = octets.filter(|(_, octet)| *octet == b'\n');
        let starts = ends.map(|(end, _)| end.saturating_add(1));
        Self {
            starts: std::iter::once(0).chain(starts).collect(),
        }
    }

    /// Returns the line of an octet, from 1.
    #[must_use]
    pub fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }
}

/// Returns the error for a fault that a check found.
#[must_use]
pub fn of_fault(text: &str, path: &Path, fault: LocatedFault) -> FileError {
    let offset = DeTable::parse(text)
        .map(|table| offset_of(table.get_ref(), &fault.path))
        .unwrap_or(0);
    wrong(text, path, offset, written(&fault.path), fault.message)
}

fn wrong(text: &str, path: &Path, offset: usize, key: String, message: String) -> FileError {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or(before);
    FileError::Wrong {
        path: path.to_owned(),
        line: line_of(text, offset),
        column: line.chars().count().saturating_add(1),
        key,
        message,
    }
}

fn written(path: &[At]) -> String {
    path.iter().fold(String::new(), |text, at| match at {
        At::Key(key) if text.is_empty() => (*key).to_owned(),
        At::Key(key) => format!("{text}.{key}"),
        At::Index(index) => format!("{text}[{index}]"),
    })
}

/// Returns the start of the value at `path`, or of the innermost value around it that is in the file.
fn offset_of(table: &DeTable<'_>, path: &[At]) -> usize {
    let mut offset = 0;
    let mut here: Option<&DeValue<'_>> = None;
    for at in path {
        let next = match (at, here) {
            (At::Key(key), None) => table.get(*key),
            (At::Key(key), Some(DeValue::Table(table))) => table.get(*key),
            (At::Index(index), Some(DeValue::Array(array))) => array.get(*index),
            _ => None,
        };
        let Some(next) = next else { break };
        offset = next.span().start;
        here = Some(next.get_ref());
    }
    offset
}

/// Returns the path of the key whose name or value contains `span`.
fn key_at(table: &DeTable<'_>, span: &Range<usize>) -> String {
    let holds = |outer: Range<usize>| outer.start <= span.start && span.end <= outer.end;
    for (key, value) in table.iter() {
        let name = key.get_ref().to_string();
        if holds(key.span()) {
            return name;
        }
        let inner = key_in(value.get_ref(), span);
        match inner {
            Some(inner) if inner.starts_with('[') => return format!("{name}{inner}"),
            Some(inner) => return format!("{name}.{inner}"),
            None if holds(value.span()) => return name,
            None => {}
        }
    }
    String::new()
}

fn key_in(value: &DeValue<'_>, span: &Range<usize>) -> Option<String> {
    match value {
        DeValue::Table(table) => Some(key_at(table, span)).filter(|key| !key.is_empty()),
        DeValue::Array(array) => array.iter().enumerate().find_map(|(index, element)| {
            let inner = key_in(element.get_ref(), span);
            let outer = element.span();
            let holds = outer.start <= span.start && span.end <= outer.end;
            match inner {
                Some(inner) if inner.starts_with('[') => Some(format!("[{index}]{inner}")),
                Some(inner) => Some(format!("[{index}].{inner}")),
                None => holds.then(|| format!("[{index}]")),
            }
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    const TEXT: &str = "name = \"a\"\n\n[[goal]]\nratio = 1\n[[goal]]\nratio = [1, { deep = 2 }]\n";

    fn shown(error: &FileError) -> String {
        error.to_string()
    }

    #[test]
    fn a_fault_is_where_its_value_begins() {
        let path = Path::new("x.toml");
        let way = [
            At::Key("goal"),
            At::Index(1),
            At::Key("ratio"),
            At::Index(1),
            At::Key("deep"),
        ];
        let fault = |path: &[At]| LocatedFault {
            path: path.to_vec(),
            message: "wrong".to_owned(),
        };
        let error = of_fault(TEXT, path, fault(&way));
        assert_eq!(shown(&error), "x.toml:6:22: goal[1].ratio[1].deep: wrong");
        // A value that is missing: the location is the start of the innermost table around it.
        let error = of_fault(
            TEXT,
            path,
            fault(&[At::Key("goal"), At::Index(0), At::Key("none")]),
        );
        assert!(
            shown(&error).starts_with("x.toml:3:1: goal[0].none: "),
            "{error}"
        );
        let error = of_fault("", path, fault(&[]));
        assert_eq!(shown(&error), "x.toml:1:1: wrong");
    }

    #[test]
    fn the_key_of_a_place_is_its_way_from_the_root() {
        let at = |part: &str| {
            let start = TEXT.find(part).unwrap();
            key_of(TEXT, &(start..start + part.len()))
        };
        assert_eq!(at("name"), "name");
        assert_eq!(at("\"a\""), "name");
        assert_eq!(at("deep"), "goal[1].ratio[1].deep");
        assert_eq!(key_of("a = ", &(0..1)), "");
        let lines = [(0, 1), (10, 1), (11, 2), (12, 3), (10_000, 7)];
        for (offset, line) in lines {
            assert_eq!(line_of(TEXT, offset), line, "{offset}");
            assert_eq!(Lines::of(TEXT).line(offset), line, "{offset}");
        }
    }

    #[test]
    fn errors_of_toml_have_line_column_and_key() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Small {
            #[expect(dead_code, reason = "only read from a file")]
            number: u8,
        }
        let read = |text: &str| {
            let error = toml::from_str::<Small>(text).unwrap_err();
            shown(&of_toml(text, Path::new("x.toml"), &error))
        };
        assert!(read("number = 300").starts_with("x.toml:1:10: number: "));
        assert!(read("number = 3\n\ncolour = 4").starts_with("x.toml:3:1: colour: "));
        assert!(read("number = ").starts_with("x.toml:1:"));
    }

    proptest! {
        #[test]
        fn no_text_and_no_place_makes_it_panic(text in "[a-c\\[\\]{}=.,\"'0-9\n ä]{0,40}", start in 0usize..50, length in 0usize..10) {
            let _ = (key_of(&text, &(start..start + length)), line_of(&text, start));
            let path = vec![At::Key("a"), At::Index(start), At::Key("b")];
            let message = String::new();
            let _ = of_fault(&text, Path::new("x"), LocatedFault { path, message }).to_string();
            let _ = wrong(&text, Path::new("x"), start, String::new(), String::new());
        }
    }
}
