// SPDX-License-Identifier: Apache-2.0
//! Choice of the window that a node selects.

use super::key::{PORTS, WORDS};
use super::region::{Region, Values, Window};
use super::rule::{ALL, Rule};

/// Rules that the choice reads.
const SAMPLE: usize = 128;
/// Nodes of at least this number of rules move those that have no value in the window to the next tree.
const MOVING: usize = 32;

/// A window and its effect on the rules of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) window: Window,
    /// Rules with more values than this move to the next tree.
    pub(super) values_max: usize,
}

/// Distance between the windows of a width.
const DISTANCE: usize = 2;
/// Largest share of the rules that is left after a cut.
const SHARE_MAX: f64 = 0.8;
/// Largest growth of the number of copies if no window has less.
const GROWTH_MAX: f64 = 6.0;

/// Returns widths of windows for a number of rules, and the largest growth of the number of copies. Growth near the root multiplies.
const fn limits(rules: usize) -> (&'static [u32], f64) {
    match rules {
        0..12 => (&[2, 4], 3.0),
        12..64 => (&[2, 4, 6], 2.0),
        64..1024 => (&[4, 6, 8], 1.6),
        1024..16_384 => (&[6, 8, 10], 1.3),
        _ => (&[8, 10, 12], 1.2),
    }
}

/// Returns the bits of a word that some rule compares and that the region does not know.
#[allow(clippy::indexing_slicing, reason = "words of a key are below WORDS")]
fn compared(rules: &[Rule], sample: &[u32], region: &Region) -> [u32; WORDS] {
    let mut words = [0; WORDS];
    for rule in sample.iter().filter_map(|rule| rules.get(*rule as usize)) {
        for (bits, mask) in words.iter_mut().zip(&rule.mask) {
            *bits |= mask;
        }
        let of = |ports: (u16, u16)| if ports == ALL { 0 } else { 0xffff };
        words[PORTS] |= (of(rule.source_ports) << 16) | of(rule.destination_ports);
    }
    for (word, bits) in words.iter_mut().enumerate() {
        *bits &= region.unknown(word);
    }
    words
}

/// Distribution of a sample over the values of a window.
struct Spread {
    /// Rules of each value, without those with all values.
    of_value: Vec<u32>,
    /// Rules that move to the next tree.
    moved: usize,
    /// Rules with all values.
    wild: usize,
}

impl Spread {
    fn clear(&mut self, size: usize) {
        self.of_value.clear();
        self.of_value.resize(size, 0);
        (self.moved, self.wild) = (0, 0);
    }

    #[expect(clippy::arithmetic_side_effects, reason = "counts at most all rules")]
    fn add(&mut self, values: Values, window: Window, values_max: usize) {
        let count = values.count();
        if count > values_max {
            self.moved += 1;
        } else if count == window.size() {
            self.wild += 1;
        } else {
            values.each(window, |value| {
                if let Some(rules) = self.of_value.get_mut(value) {
                    *rules += 1;
                }
            });
        }
    }

    /// Returns the costs of the distribution, as the share of the rules that a packet still has to be compared with, and the number of
    /// copies. Children with the same rules are one.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "copies of a bounded number of rules"
    )]
    fn cost(&self, rules: usize) -> (f64, usize) {
        let wild = self.wild as f64;
        let (mut sum, mut weighted, mut copies, mut has_rest) = (0.0, 0.0, 0usize, false);
        for of_value in &self.of_value {
            if *of_value == 0 {
                has_rest = true;
                continue;
            }
            let all = f64::from(*of_value) + wild;
            sum += f64::from(*of_value);
            weighted += f64::from(*of_value) * all;
            copies += *of_value as usize + self.wild;
        }
        if has_rest || copies == 0 {
            copies += self.wild;
            sum += wild;
            weighted += wild * wild;
        }
        let expected = if sum > 0.0 { weighted / sum } else { 0.0 };
        ((expected + self.moved as f64) / rules as f64, copies)
    }
}

/// Chooses the window for a node; `None` if no window separates its rules. `may_move` is false in the last tree.
#[allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "widths and shifts are at most 32, and words of a key are below WORDS"
)]
pub(super) fn choose(rules: &[Rule], list: &[u32], region: &Region, may_move: bool) -> Option<Cut> {
    let stride = list.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<u32> = list.iter().copied().step_by(stride).collect();
    let bits = compared(rules, &sample, region);
    let (widths, growth_max) = limits(list.len());
    let may_move = may_move && list.len() >= MOVING;
    let mut spread = Spread {
        of_value: Vec::new(),
        moved: 0,
        wild: 0,
    };
    // The best cut, and the best of those that make many copies.
    let mut best: Option<(f64, Cut)> = None;
    let mut costly: Option<(f64, Cut)> = None;
    for (word, bits) in bits.into_iter().enumerate().filter(|(_, bits)| *bits != 0) {
        for width in widths {
            for shift in (0..=32 - width).step_by(DISTANCE) {
                let window = Window {
                    word,
                    shift,
                    bits: *width,
                };
                let is_across = word == PORTS && shift < 16 && shift + width > 16;
                let selected = (bits >> shift) & window.top();
                // The outer bits must be compared by some rule: a narrower window is as good otherwise.
                let is_tight = selected & 1 != 0 && selected >> (width - 1) != 0;
                if is_across
                    || selected == 0
                    || region.knows(window)
                    || !(is_tight || *width == widths[0])
                {
                    continue;
                }
                let values_max = match may_move {
                    true => (window.size() / 32).max(1),
                    false => window.size(),
                };
                spread.clear(window.size());
                for rule in sample.iter().filter_map(|rule| rules.get(*rule as usize)) {
                    spread.add(region.values(rule, window), window, values_max);
                }
                let (share, copies) = spread.cost(sample.len());
                let growth = copies as f64 / sample.len() as f64;
                if share > SHARE_MAX || growth > GROWTH_MAX {
                    continue;
                }
                let cost = share + 0.1 * growth + 0.003 * f64::from(*width);
                let kind = match growth <= growth_max {
                    true => &mut best,
                    false => &mut costly,
                };
                if kind.is_none_or(|(least, _)| cost < least) {
                    *kind = Some((cost, Cut { window, values_max }));
                }
                // Every rule is alone.
                if share * sample.len() as f64 <= 1.2 && growth <= 1.1 {
                    return best.map(|(_, cut)| cut);
                }
            }
        }
    }
    best.or(costly).map(|(_, cut)| cut)
}
