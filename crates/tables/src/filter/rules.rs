// SPDX-License-Identifier: Apache-2.0
//! Filter rules of one port: the first match decides, stateless. Rules are evaluated linearly, one burst at a time. A port without rules
//! has no filter stage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_base::BURST_MAX;
use quietwire_packet::ETHERNET_HEADER_LENGTH;

use super::RULES_MAX;
use super::packet::PacketMatch;
use super::pattern::{Headers, Pattern, after_tags};
use crate::filter::Action;

/// A rule of a port.
#[derive(Clone, Debug)]
pub struct PortRule {
    /// Its index among all rules of the switch, for traces.
    pub number: u16,
    /// VLAN of the outermost tag.
    pub vlan: Option<u16>,
    /// Packet to match.
    pub packet: PacketMatch,
    /// Action for matching frames.
    pub action: Action,
    /// Frames that it has decided on, at all ports.
    pub frames: Arc<AtomicU64>,
}

/// Verdict of the rules for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A rule with this number decided.
    Rule(u16, Action),
    /// The default action: no rule matches.
    Default(Action),
    /// The frame is shorter than its header: the next stage drops and counts it.
    Short,
}

impl Verdict {
    /// Returns true if the frame is accepted.
    #[inline(always)]
    pub const fn accepts(self) -> bool {
        !matches!(
            self,
            Self::Rule(_, Action::Drop) | Self::Default(Action::Drop)
        )
    }
}

/// Verdict for each frame of a burst.
pub type Verdicts = [Verdict; BURST_MAX];

#[derive(Debug)]
struct Compared {
    pattern: Pattern,
    /// VLAN number, or [`ANY_VLAN`].
    vlan: u16,
    number: u16,
    action: Action,
}

/// No frame has this VLAN: VLAN numbers have twelve bits.
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
    /// Creates the rules of a port, in order. `default` applies to frames without a match and has a counter. Rules beyond [`RULES_MAX`] are
    /// ignored.
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

    /// Judges a burst and counts. Returns the number of dropped frames.
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
            dropped += usize::from(!verdict.accepts());
        }
        for (sum, count) in self.frames.iter().zip(matched) {
            add(sum, u64::from(count));
        }
        add(&self.default_frames, unmatched);
        dropped
    }

    /// Returns the first matching rule and its index; `None` for a frame that is too short.
    #[inline(always)]
    fn first(&self, frame: &[u8]) -> Option<Option<(usize, &Compared)>> {
        if frame.len() < ETHERNET_HEADER_LENGTH {
            return None;
        }
        let (vlan, rest) = after_tags(frame)?;
        // A frame truncated within its tags matches only rules without packet fields.
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
