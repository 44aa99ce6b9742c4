// SPDX-License-Identifier: Apache-2.0
//! Regions: the keys that reach a node.

use super::key::{PORTS, WORDS};
use super::rule::Rule;

/// Keys that agree in some bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    known: [u32; WORDS],
    value: [u32; WORDS],
}

/// Adjacent bits of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) word: usize,
    pub(super) shift: u32,
    pub(super) bits: u32,
}

impl Window {
    /// Returns the number of values of the window.
    #[allow(clippy::arithmetic_side_effects, reason = "windows have few bits")]
    pub(super) const fn size(self) -> usize {
        1 << self.bits
    }

    /// Returns the highest value of the window.
    #[allow(clippy::arithmetic_side_effects, reason = "windows have few bits")]
    pub(super) const fn top(self) -> u32 {
        (1 << self.bits) - 1
    }
}

/// Values of a window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values {
    /// Those that are `value` in the bits that are not `wild`.
    Masked { value: u32, wild: u32 },
    /// `count` values from `first` on, modulo the size of the window.
    Interval { first: u32, count: u32 },
}

impl Values {
    /// Returns the number of values.
    #[allow(clippy::arithmetic_side_effects, reason = "windows have few bits")]
    pub(super) const fn count(self) -> usize {
        match self {
            Self::Masked { wild, .. } => 1 << wild.count_ones(),
            Self::Interval { count, .. } => count as usize,
        }
    }

    /// Calls a function with each value.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at least one bit is left, and values are of windows of few bits"
    )]
    #[inline]
    pub(super) fn each(self, window: Window, mut call: impl FnMut(usize)) {
        match self {
            Self::Masked { value, wild } => {
                let mut bits = wild;
                loop {
                    call((value | bits) as usize);
                    if bits == 0 {
                        break;
                    }
                    bits = (bits - 1) & wild;
                }
            }
            Self::Interval { first, count } => {
                for step in 0..count {
                    call(((first + step) & window.top()) as usize);
                }
            }
        }
    }
}

impl Region {
    /// All keys.
    pub(super) const ALL: Self = Self {
        known: [0; WORDS],
        value: [0; WORDS],
    };

    /// Returns true if some bit of the window is known.
    #[expect(
        clippy::indexing_slicing,
        reason = "windows are in words of a key, within 32 bits"
    )]
    pub(super) const fn knows(&self, window: Window) -> bool {
        (self.known[window.word] >> window.shift) & window.top() != 0
    }

    /// Returns the bits of a word that are not known.
    #[expect(clippy::indexing_slicing, reason = "words of a key are below WORDS")]
    pub(super) const fn unknown(&self, word: usize) -> u32 {
        !self.known[word]
    }

    /// Returns the part of the region with this value of a window.
    #[expect(
        clippy::indexing_slicing,
        reason = "windows are in words of a key, within 32 bits"
    )]
    pub(super) fn part(mut self, window: Window, value: u32) -> Self {
        self.known[window.word] |= window.top() << window.shift;
        self.value[window.word] |= value << window.shift;
        self
    }

    /// Returns the lowest and the highest port of the region, and the number of leading bits that are known. Without leading bits these are
    /// all ports, even if other bits are known.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the half of the word that the shift selects"
    )]
    fn ports(&self, shift: u32) -> (u16, u16, u32) {
        let known = (self.known[PORTS] >> shift) as u16;
        let value = (self.value[PORTS] >> shift) as u16;
        let leading = known.leading_ones();
        let open = u16::MAX.checked_shr(leading).unwrap_or(0);
        (value & !open, value | open, leading)
    }

    /// Returns the values of a window for which a rule can match. May return more of them for ranges of ports.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "windows are in words of a key, within 32 bits, and the last value is not below the first"
    )]
    pub(super) fn values(&self, rule: &Rule, window: Window) -> Values {
        if window.word != PORTS {
            let wild = !(rule.mask[window.word] >> window.shift) & window.top();
            let value = (rule.value[window.word] >> window.shift) & window.top() & !wild;
            return Values::Masked { value, wild };
        }
        let (half, (first, last)) = match window.shift >= 16 {
            true => (16, rule.source_ports),
            false => (0, rule.destination_ports),
        };
        let shift = window.shift - half;
        let (low, high, leading) = self.ports(half);
        let all = Values::Interval {
            first: 0,
            count: window.size() as u32,
        };
        let (first, last) = match leading + window.bits + shift == 16 {
            // The window is behind the leading bits: values do not wrap around.
            true => (first.max(low), last.min(high)),
            false => (first, last),
        };
        if first > last {
            return Values::Interval { first: 0, count: 0 };
        }
        let (first, last) = (u32::from(first) >> shift, u32::from(last) >> shift);
        match last - first > window.top() {
            true => all,
            false => Values::Interval {
                first: first & window.top(),
                count: (last - first) + 1,
            },
        }
    }

    /// Returns true if a rule that can match in the region matches all of its keys.
    pub(super) fn is_covered_by(&self, rule: &Rule) -> bool {
        let covers = |shift: u32, (first, last): (u16, u16)| {
            let (low, high, _) = self.ports(shift);
            first <= low && high <= last
        };
        let mut words = rule.mask.iter().zip(&self.known);
        words.all(|(mask, known)| mask & !known == 0)
            && covers(16, rule.source_ports)
            && covers(0, rule.destination_ports)
    }
}
