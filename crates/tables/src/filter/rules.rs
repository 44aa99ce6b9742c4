// SPDX-License-Identifier: Apache-2.0
//! The rules of one port: the first that a frame matches decides, without memory of earlier frames. They are looked at one
//! by one, a burst at a time. A port without rules has none of this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_base::BURST_MAX;
use quietwire_packet::ETHERNET_HEADER_LENGTH;

use super::RULES_MAX;
use super::packet::PacketMatch;
use super::pattern::{Headers, Pattern, behind_tags};
use crate::filter::Action;

/// A rule, as a port gets it.
#[derive(Clone, Debug)]
pub struct PortRule {
    /// Its place among all rules of the switch, by which it is known to those who look.
    pub number: u16,
    /// VLAN of the outermost tag.
    pub vlan: Option<u16>,
    /// What is asked of the packet.
    pub packet: PacketMatch,
    /// What becomes of it.
    pub action: Action,
    /// Frames that it has decided on, at all ports.
    pub frames: Arc<AtomicU64>,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A rule decided, with this number.
    Rule(u16, Action),
    /// No rule matches.
    Default(Action),
    /// It is shorter than its header: whatever comes next drops and counts it.
    Short,
}

impl Verdict {
    /// Whether the frame goes on.
    #[inline(always)]
    pub const fn lets_through(self) -> bool {
        !matches!(
            self,
            Self::Rule(_, Action::Drop) | Self::Default(Action::Drop)
        )
    }
}

/// What became of each frame of a burst.
pub type Verdicts = [Verdict; BURST_MAX];

#[derive(Debug)]
struct Compared {
    pattern: Pattern,
    /// [`ANY_VLAN`] or a number.
    vlan: u16,
    number: u16,
    action: Action,
}

/// No frame is of this VLAN: numbers have twelve bits.
const ANY_VLAN: u16 = u16::MAX;

/// All rules of a port, in order.
#[derive(Debug)]
pub struct PortRules {
    rules: Vec<Compared>,
    frames: Vec<Arc<AtomicU64>>,
    default: Action,
    default_frames: Arc<AtomicU64>,
}

impl PortRules {
    /// Of rules in order, what becomes of frames that none of them matches, and the count of those. Rules beyond
    /// [`RULES_MAX`] are left out.
    pub fn new(
        rules: impl IntoIterator<Item = PortRule>,
        default: Action,
        default_frames: Arc<AtomicU64>,
    ) -> Self {
        let compared = |rule: PortRule| {
            let compared = Compared {
                pattern: Pattern::new(&rule.packet),
                vlan: rule.vlan.unwrap_or(ANY_VLAN),
                number: rule.number,
                action: rule.action,
            };
            (compared, rule.frames)
        };
        let (rules, frames) = rules.into_iter().take(RULES_MAX).map(compared).unzip();
        Self {
            rules,
            frames,
            default,
            default_frames,
        }
    }

    /// Decides on a burst and counts; returns how many frames do not go on.
    pub fn judge<'frame>(
        &self,
        frames: impl Iterator<Item = &'frame [u8]>,
        verdicts: &mut Verdicts,
    ) -> usize {
        let mut matched = [0u16; RULES_MAX];
        let (mut unmatched, mut dropped) = (0, 0);
        for (frame, verdict) in frames.zip(verdicts) {
            *verdict = match self.first(frame) {
                None => Verdict::Short,
                Some(None) => {
                    unmatched += 1;
                    Verdict::Default(self.default)
                }
                Some(Some((place, rule))) => {
                    if let Some(count) = matched.get_mut(place) {
                        *count += 1;
                    }
                    Verdict::Rule(rule.number, rule.action)
                }
            };
            dropped += usize::from(!verdict.lets_through());
        }
        for (sum, count) in self.frames.iter().zip(matched) {
            add(sum, u64::from(count));
        }
        add(&self.default_frames, unmatched);
        dropped
    }

    /// The first rule that matches, with its place; nothing of a frame that is too short.
    #[inline(always)]
    fn first(&self, frame: &[u8]) -> Option<Option<(usize, &Compared)>> {
        if frame.len() < ETHERNET_HEADER_LENGTH {
            return None;
        }
        let (vlan, rest) = behind_tags(frame)?;
        // A frame that ends within its tags matches what is not asked about its inside.
        let headers = Headers::from_ethertype_on(rest).unwrap_or(Headers::NOTHING);
        let mut rules = self.rules.iter().enumerate();
        Some(rules.find(|(_, rule)| {
            (rule.vlan == ANY_VLAN || vlan == Some(rule.vlan)) && rule.pattern.matches(&headers)
        }))
    }
}

#[inline(always)]
fn add(sum: &AtomicU64, count: u64) {
    if count > 0 {
        sum.fetch_add(count, Ordering::Relaxed);
    }
}
