// SPDX-License-Identifier: Apache-2.0
//! Where in a TOML file a fault is: line, column and key.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file could not be read.
    #[error("the file {} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The file says something that it may not.
    #[error("{}:{line}:{column}: {}{message}", path.display(), KeyPrefix(key))]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// The key as a path, `search.goal[1].loss-ratio`; empty where it is not known.
        key: String,
        /// What is wrong and what would be right.
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

/// One step of the way to a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum At {
    /// A key of a table.
    Key(&'static str),
    /// An element of an array, from 0.
    Index(usize),
}

/// Something wrong with a file that could be read.
#[derive(Debug)]
pub struct Fault {
    /// The way to the value.
    pub path: Vec<At>,
    /// What is wrong and what would be right.
    pub message: String,
}

/// The error for what the TOML reader found.
#[must_use]
pub fn of_toml(text: &str, path: &Path, message: &str, span: Option<Range<usize>>) -> FileError {
    let key = match (&span, DeTable::parse(text)) {
        (Some(span), Ok(table)) => key_at(table.get_ref(), span),
        _ => String::new(),
    };
    wrong(
        text,
        path,
        span.map_or(0, |span| span.start),
        key,
        message.to_owned(),
    )
}

/// The error for what a check found.
#[must_use]
pub fn of_fault(text: &str, path: &Path, fault: Fault) -> FileError {
    let offset = DeTable::parse(text)
        .map(|table| offset_of(table.get_ref(), &fault.path))
        .unwrap_or(0);
    wrong(text, path, offset, written(&fault.path), fault.message)
}

fn wrong(text: &str, path: &Path, offset: usize, key: String, message: String) -> FileError {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    FileError::Wrong {
        path: path.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
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

/// Where the value at `path` begins, or the nearest thing around it that is in the file.
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

/// The key whose name or value holds `span`, as a path.
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
