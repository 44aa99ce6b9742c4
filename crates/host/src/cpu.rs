// SPDX-License-Identifier: Apache-2.0
//! CPU IDs and sets of CPUs, in the kernel's list form (`3,4,8-11`) and mask form (`0x60`), and in vRouter's list form
//! (`(5,6)`).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Number of a logical CPU in the kernel (`/sys/devices/system/cpu/cpuN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CpuId(pub u32);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Highest valid CPU number: the kernel's limit (`CONFIG_NR_CPUS` on x86-64) minus one.
pub const CPU_ID_MAX: u32 = 8191;

/// Syntax errors of a CPU set.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CpuListError {
    /// A part is neither a number nor a range of numbers.
    #[error("'{0}' is not a CPU number or range (use a list like 3,4,8-11 or a mask like 0x60)")]
    NotANumber(String),
    /// A range that ends before it begins.
    #[error("the CPU range '{0}' ends before it begins")]
    Backwards(String),
    /// A number exceeds [`CPU_ID_MAX`].
    #[error("CPU {0} exceeds the kernel's limit of {CPU_ID_MAX}")]
    TooLarge(u64),
}

/// A set of CPUs, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList(BTreeSet<CpuId>);

impl CpuList {
    /// Returns the empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Iterates over the CPUs in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = CpuId> + '_ {
        self.0.iter().copied()
    }

    /// Returns the number of CPUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether `cpu` is in the set.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.contains(&cpu)
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: CpuId) {
        self.0.insert(cpu);
    }

    /// Returns the lowest CPU.
    #[must_use]
    pub fn first(&self) -> Option<CpuId> {
        self.0.first().copied()
    }

    /// Returns the CPUs that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Returns the CPUs that are in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }

    /// Returns the CPUs of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Formats the set as a mask: `0x` and hexadecimal digits. CPU 0 is the lowest bit.
    #[must_use]
    pub fn to_mask(&self) -> String {
        let last = self.0.last().map_or(0, |cpu| cpu.0 / 4);
        let bit = |cpu: u32| u32::from(self.0.contains(&CpuId(cpu))) << (cpu % 4);
        let digit = |position: u32| {
            let first = position.saturating_mul(4);
            (0..4).fold(0, |bits, cpu| bits | bit(first.saturating_add(cpu)))
        };
        let hex: String = (0..=last)
            .rev()
            .map(|n| format!("{:x}", digit(n)))
            .collect();
        format!("0x{hex}")
    }

    fn from_mask(digits: &str, whole: &str) -> Result<Self, CpuListError> {
        let mut cpus = BTreeSet::new();
        let clean: Vec<char> = digits.chars().filter(|c| *c != ',' && *c != '_').collect();
        if clean.is_empty() {
            return Err(CpuListError::NotANumber(whole.to_owned()));
        }
        for (position, digit) in clean.iter().rev().enumerate() {
            let value = digit
                .to_digit(16)
                .ok_or_else(|| CpuListError::NotANumber(whole.to_owned()))?;
            for bit in (0..4u64).filter(|bit| value & (1 << bit) != 0) {
                let number = (position as u64).saturating_mul(4).saturating_add(bit);
                cpus.insert(checked_id(number)?);
            }
        }
        Ok(Self(cpus))
    }
}

fn checked_id(number: u64) -> Result<CpuId, CpuListError> {
    u32::try_from(number)
        .ok()
        .filter(|n| *n <= CPU_ID_MAX)
        .map(CpuId)
        .ok_or(CpuListError::TooLarge(number))
}

fn parse_id(text: &str) -> Result<CpuId, CpuListError> {
    let number: u64 = text
        .trim()
        .parse()
        .map_err(|_| CpuListError::NotANumber(text.to_owned()))?;
    checked_id(number)
}

impl FromStr for CpuList {
    type Err = CpuListError;

    /// Parses a list (`3,4,8-11`, cpuset(7) "List format"), which may be in parentheses (`(5,6)`, as in vRouter's options), or
    /// a mask (`0x60`). Blank text is the empty set.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if let Some(mask) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            return Self::from_mask(mask, text);
        }
        let list = in_parentheses(text).unwrap_or(text);
        Ok(Self(listed(list)?.into_iter().collect()))
    }
}

/// Returns the text within parentheses that enclose all of it.
fn in_parentheses(text: &str) -> Option<&str> {
    let list = text.strip_prefix('(')?.strip_suffix(')')?;
    Some(list.trim())
}

/// Parses a list and returns its CPUs in the order of the text.
fn listed(text: &str) -> Result<Vec<CpuId>, CpuListError> {
    let mut cpus = Vec::new();
    if text.is_empty() {
        return Ok(cpus);
    }
    for part in text.split(',') {
        match part.split_once('-') {
            None => cpus.push(parse_id(part)?),
            Some((low, high)) => {
                let (low, high) = (parse_id(low)?, parse_id(high)?);
                if low > high {
                    return Err(CpuListError::Backwards(part.to_owned()));
                }
                cpus.extend((low.0..=high.0).map(CpuId));
            }
        }
    }
    Ok(cpus)
}

/// CPUs in a given order, possibly repeated: `5,4,5`, or the forms of [`CpuList`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSequence(Vec<CpuId>);

impl CpuSequence {
    /// Iterates over the CPUs in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = CpuId> + '_ {
        self.0.iter().copied()
    }

    /// Returns whether there are no CPUs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the set of CPUs, each once.
    #[must_use]
    pub fn to_list(&self) -> CpuList {
        self.iter().collect()
    }
}

impl FromStr for CpuSequence {
    type Err = CpuListError;

    /// Parses the forms of [`CpuList`]. A list keeps its order; a mask is in ascending order.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.starts_with("0x") || text.starts_with("0X") {
            return Ok(text.parse::<CpuList>()?.iter().collect());
        }
        listed(in_parentheses(text).unwrap_or(text)).map(Self)
    }
}

impl TryFrom<String> for CpuSequence {
    type Error = CpuListError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CpuSequence> for String {
    fn from(cpus: CpuSequence) -> Self {
        cpus.to_string()
    }
}

impl FromIterator<CpuId> for CpuSequence {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSequence {
    /// Formats the CPUs one by one: `5,4,5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, cpu) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{cpu}")?;
        }
        Ok(())
    }
}

impl TryFrom<String> for CpuList {
    type Error = CpuListError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.to_string()
    }
}

impl FromIterator<CpuId> for CpuList {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuList {
    /// Formats the set in the kernel's list form, with ranges: `3-4,8-11`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in &self.0 {
            match ranges.last_mut() {
                Some((_, high)) if high.checked_add(1) == Some(cpu.0) => *high = cpu.0,
                _ => ranges.push((cpu.0, cpu.0)),
            }
        }
        for (index, (low, high)) in ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if low == high {
                write!(f, "{comma}{low}")?;
            } else {
                write!(f, "{comma}{low}-{high}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    #[test]
    fn list_and_mask_name_the_same_cpus() {
        assert_eq!(list("5,6"), list("0x0060"));
        assert_eq!(list(" (5, 6) "), list("0x0060"));
        assert_eq!(list("(3-5)"), list("3-5"));
        assert_eq!(list("3,4,8-11").to_string(), "3-4,8-11");
        assert_eq!(list("3,4,8-11").to_mask(), "0xf18");
        assert_eq!(list("").to_mask(), "0x0");
        assert_eq!(list("0x00000001,00000000"), list("32"));
    }

    #[test]
    fn a_sequence_keeps_its_order() {
        for (text, written) in [
            ("5,4,5", "5,4,5"),
            ("(8-10,3)", "8,9,10,3"),
            ("0x60", "5,6"),
            ("", ""),
        ] {
            let sequence: CpuSequence = text.parse().unwrap();
            assert_eq!(sequence.to_string(), written);
            assert_eq!(written.parse::<CpuSequence>().unwrap(), sequence);
            assert_eq!(sequence.to_list(), list(text));
        }
        assert!("3-1".parse::<CpuSequence>().is_err());
    }

    #[test]
    fn invalid_lists_are_reported() {
        assert_eq!(
            "3-1".parse::<CpuList>(),
            Err(CpuListError::Backwards("3-1".into()))
        );
        assert_eq!(
            "1,x".parse::<CpuList>(),
            Err(CpuListError::NotANumber("x".into()))
        );
        assert_eq!(
            "0xg".parse::<CpuList>(),
            Err(CpuListError::NotANumber("0xg".into()))
        );
        assert_eq!(
            "0x".parse::<CpuList>(),
            Err(CpuListError::NotANumber("0x".into()))
        );
        assert_eq!(
            "99999".parse::<CpuList>(),
            Err(CpuListError::TooLarge(99999))
        );
        assert!("1,,2".parse::<CpuList>().is_err());
        for text in ["(5,6", "5,6)", "((5))", "(0x60)", "(5),(6)"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
        assert!("0-4294967295".parse::<CpuList>().is_err());
    }
}
