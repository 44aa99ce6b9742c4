// SPDX-License-Identifier: Apache-2.0
//! Lines of a journal: a CRC-32C in hexadecimal digits, the length of the JSON object in octets, and the object. The CRC covers everything
//! after it. Journals of earlier versions have lines of the object alone.
//!
//! With its length, a line is found even if the newline at its end is damaged.

use quietwire_base::crc32c;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Content of a line, or of a damaged one.
pub(super) trait Content: DeserializeOwned {
    /// Returns the content that stands for a damaged line, with its number, from 1, and its text, shortened.
    fn damaged(line: usize, text: String) -> Self;
}

/// Hexadecimal digits of the CRC.
const CRC_DIGITS: usize = 8;
/// Most digits of a length.
const LENGTH_DIGITS_MAX: usize = 9;
/// Beginning of a line without a CRC.
const OLD: &[u8] = b"{\"change\":";
/// Most characters of a damaged line that are kept.
const SHOWN_MAX: usize = 2000;

/// Returns the line of a change, with its newline.
pub(super) fn encode(change: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let object = serde_json::to_string(change)?;
    let covered = format!("{} {object}", object.len());
    Ok(format!("{:08x} {covered}\n", crc32c(covered.as_bytes())).into_bytes())
}

/// The text of a journal.
#[derive(Debug)]
pub(super) struct Parsed<T> {
    /// Contents of all lines, in order, damaged ones included.
    pub(super) changes: Vec<T>,
    /// Length without an incomplete last line, octets.
    pub(super) whole: usize,
    /// Whether the last line lacks only its newline.
    pub(super) lacks_newline: bool,
}

/// Reads all lines. An incomplete last line belongs to a change that was not made, and is left out.
pub(super) fn parse<T: Content>(text: &[u8]) -> Parsed<T> {
    let mut parsed = Parsed {
        changes: Vec::new(),
        whole: 0,
        lacks_newline: false,
    };
    let mut line = 1usize;
    // Lines without a CRC come first: earlier versions wrote them.
    let mut may_be_old = true;
    while let Some(rest) = text.get(parsed.whole..).filter(|rest| !rest.is_empty()) {
        let sealed = sealed(rest, line);
        may_be_old &= sealed.is_none();
        let old = || may_be_old.then(|| unsealed(rest)).flatten();
        if let Some((change, used)) = sealed.or_else(old) {
            parsed.changes.push(change);
            // If the octet after the object is not a newline, it is a damaged newline.
            parsed.lacks_newline = used == rest.len();
            let used = used.saturating_add(1).min(rest.len());
            parsed.whole = parsed.whole.saturating_add(used);
            line = line.saturating_add(1);
            continue;
        }
        let Some(end) = rest.iter().position(|octet| *octet == b'\n') else {
            break;
        };
        // Earlier versions did not remove a line that was cut short, and wrote the next one behind it.
        let damaged = rest.get(..end).unwrap_or_default();
        let behind = damaged.strip_prefix(OLD).filter(|_| may_be_old);
        let next = behind.and_then(|behind| OLD.len().checked_add(find(behind, OLD)?));
        parsed.changes.push(unreadable(line, damaged, next));
        let used = match next {
            Some(next) => next,
            None => {
                line = line.saturating_add(1);
                end.saturating_add(1)
            }
        };
        parsed.whole = parsed.whole.saturating_add(used);
    }
    parsed
}

fn unreadable<T: Content>(line: usize, damaged: &[u8], end: Option<usize>) -> T {
    let damaged = damaged.get(..end.unwrap_or(damaged.len()));
    let text = String::from_utf8_lossy(damaged.unwrap_or_default());
    let text = text.chars().take(SHOWN_MAX).collect();
    T::damaged(line, text)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}

/// Reads a line with a CRC. Returns the change and the length without the newline; `None` if the line is damaged or has no CRC.
fn sealed<T: Content>(rest: &[u8], line: usize) -> Option<(T, usize)> {
    let crc = rest.get(..CRC_DIGITS)?;
    let crc = u32::from_str_radix(std::str::from_utf8(crc).ok()?, 16).ok()?;
    let covered = rest.get(CRC_DIGITS..)?.strip_prefix(b" ")?;
    let digits = covered.iter().take(LENGTH_DIGITS_MAX + 1);
    let digits = digits.take_while(|octet| octet.is_ascii_digit()).count();
    let length: usize = std::str::from_utf8(covered.get(..digits)?)
        .ok()?
        .parse()
        .ok()?;
    let start = digits.checked_add(1)?;
    let covered = covered.get(..start.checked_add(length)?)?;
    let object = covered.get(start..)?;
    let is_whole = crc32c(covered) == crc && covered.get(digits) == Some(&b' ');
    let used = covered.len().checked_add(CRC_DIGITS + 1)?;
    is_whole.then(|| {
        // An intact line may be of a later version.
        let change = serde_json::from_slice(object);
        (
            change.unwrap_or_else(|_| unreadable(line, object, None)),
            used,
        )
    })
}

/// Reads a line of an earlier version.
fn unsealed<T: Content>(rest: &[u8]) -> Option<(T, usize)> {
    if !rest.starts_with(OLD) {
        return None;
    }
    let mut objects = serde_json::Deserializer::from_slice(rest).into_iter();
    let change = objects.next()?.ok()?;
    Some((change, objects.byte_offset()))
}
