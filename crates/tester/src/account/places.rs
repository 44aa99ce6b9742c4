// SPDX-License-Identifier: Apache-2.0
//! Places where the frames of a trial were lost, as stored in results.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The loss account of a trial, or the reason why it is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accounted {
    /// The account of the lost frames.
    Account(LossAccount),
    /// The device's counters could not be read.
    Unavailable(String),
}

/// Account of the lost frames of a trial. The frames of all places, of the tester and of the unknown place add up to the lost frames of
/// the trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossAccount {
    /// Frames lost in the trial.
    pub lost_frames: u64,
    /// Places in the device and at its ports. The place with the most frames comes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<LossPlace>,
    /// Frames that the tester itself lost.
    pub tester_frames: u64,
    /// Frames lost at a place that no counter shows.
    pub unknown_frames: u64,
    /// Frames lost before the counted part, in the learning and the warm-up. No place includes them.
    #[serde(default)]
    pub lost_before_frames: u64,
    /// True if the device's counters hold more frames than the counted part lost, at several places. The frames of each place are then
    /// its proportional share.
    #[serde(default)]
    pub is_shared_out: bool,
    /// Counters that contradict each other; empty if all frames are accounted for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// Elements whose counters could not be read, each with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub without_counters: BTreeMap<String, String>,
}

/// A place where frames were lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LossPlace {
    /// Name of the device's element.
    pub element: String,
    /// Port of the element, or another part of it such as `router`; empty for the element as a whole.
    pub port: String,
    /// The reason: the name of a counter of the device, or the name of a [`LossReason`].
    pub reason: String,
    /// Frames lost.
    pub frames: u64,
}

/// Counters that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Name of the device's element; empty for the whole device.
    pub element: String,
    /// Port of the element; empty for the element as a whole.
    pub port: String,
    /// Kind of the contradiction.
    pub kind: DifferenceKind,
    /// Size of the contradiction, frames.
    pub frames: u64,
}

/// Kind of contradiction between counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// More frames were counted as received than the other side sent.
    MoreReceived,
    /// More frames were sent and dropped than received: copies, or frames that the element itself sent.
    MoreSent,
    /// More frames were dropped than are missing: frames of other traffic, or copies.
    MoreDropped,
    /// A counter is lower than before the trial: the element restarted.
    #[serde(rename = "went_back")]
    DecreasedCounter,
}

impl DifferenceKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [
        Self::MoreReceived,
        Self::MoreSent,
        Self::MoreDropped,
        Self::DecreasedCounter,
    ];

    /// Returns the kind in words, as reports show it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::MoreReceived => "received more than was sent to it",
            Self::MoreSent => "sent and dropped more than it received",
            Self::MoreDropped => "dropped more than is missing",
            Self::DecreasedCounter => "its counters decreased: it restarted",
        }
    }
}

/// Reasons that no counter of the device shows. They follow from two counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The port's receive ring refused the frame because it was full.
    ReceiveRingFull,
    /// The peer sent the frame, and the port did not receive it.
    NotReceived,
    /// The element received the frame, and neither sent it nor counted it as dropped.
    NotSent,
    /// The port sent the frame, and the tester did not receive it.
    NotArrived,
    /// The frame left the element by a port that is not connected to the tester.
    SentElsewhere,
    /// The frame was lost in an element whose counters could not be read.
    NotCounted,
    /// The frame came back damaged.
    Damaged,
    /// The frame came back so late that it is indistinguishable from a duplicate.
    Stale,
    /// The frame came back at the wrong port.
    Misdirected,
}

impl LossReason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::ReceiveRingFull,
        Self::NotReceived,
        Self::NotSent,
        Self::NotArrived,
        Self::SentElsewhere,
        Self::NotCounted,
        Self::Damaged,
        Self::Stale,
        Self::Misdirected,
    ];

    /// Returns the name of the reason, as stored in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReceiveRingFull => "receive_ring_full",
            Self::NotReceived => "not_received",
            Self::NotSent => "not_sent",
            Self::NotArrived => "not_arrived",
            Self::SentElsewhere => "sent_elsewhere",
            Self::NotCounted => "not_counted",
            Self::Damaged => "damaged",
            Self::Stale => "stale",
            Self::Misdirected => "misdirected",
        }
    }

    /// Returns the reason in words, as reports show it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::ReceiveRingFull => "receive ring full",
            Self::NotReceived => "sent to it, not received",
            Self::NotSent => "received, neither sent nor counted as dropped",
            Self::NotArrived => "sent, not received by the tester",
            Self::SentElsewhere => "left by a port that is not the tester's",
            Self::NotCounted => "lost in it; its counters were not read",
            Self::Damaged => "came back damaged",
            Self::Stale => "came back too late",
            Self::Misdirected => "came back at a wrong port",
        }
    }

    /// Returns the reason with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

impl LossPlace {
    /// Returns the reason in words. Counters of the device keep their own names.
    #[must_use]
    pub fn words(&self) -> &str {
        match LossReason::of_name(&self.reason) {
            Some(reason) => reason.words(),
            None => &self.reason,
        }
    }
}

/// Writes `element port`, without an empty part.
fn write_at(f: &mut fmt::Formatter<'_>, element: &str, port: &str) -> fmt::Result {
    match (element.is_empty(), port.is_empty()) {
        (true, true) => f.write_str("device"),
        (true, false) => f.write_str(port),
        (false, true) => f.write_str(element),
        (false, false) => write!(f, "{element} {port}"),
    }
}

impl fmt::Display for LossPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_at(f, &self.element, &self.port)?;
        write!(f, ": {}", self.words())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_at(f, &self.element, &self.port)?;
        write!(f, ": {}", self.kind.words())
    }
}

impl LossAccount {
    /// Returns the sum of all contradictions, frames.
    #[must_use]
    pub fn difference_frames(&self) -> u64 {
        let frames = self.differences.iter().map(|difference| difference.frames);
        frames.fold(0, u64::saturating_add)
    }

    /// Adds the account of another trial.
    pub fn add(&mut self, other: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.lost_frames, other.lost_frames);
        add(&mut self.tester_frames, other.tester_frames);
        add(&mut self.unknown_frames, other.unknown_frames);
        add(&mut self.lost_before_frames, other.lost_before_frames);
        self.is_shared_out |= other.is_shared_out;
        for more in &other.places {
            let is_same = |place: &&mut LossPlace| {
                (&place.element, &place.port, &place.reason)
                    == (&more.element, &more.port, &more.reason)
            };
            match self.places.iter_mut().find(is_same) {
                Some(place) => add(&mut place.frames, more.frames),
                None => self.places.push(more.clone()),
            }
        }
        for more in &other.differences {
            let is_same = |one: &&mut Difference| {
                (&one.element, &one.port, one.kind) == (&more.element, &more.port, more.kind)
            };
            match self.differences.iter_mut().find(is_same) {
                Some(one) => add(&mut one.frames, more.frames),
                None => self.differences.push(more.clone()),
            }
        }
        let without = other.without_counters.iter();
        self.without_counters
            .extend(without.map(|(element, why)| (element.clone(), why.clone())));
        self.sort();
    }

    pub(super) fn sort(&mut self) {
        self.places
            .sort_by(|one, other| other.frames.cmp(&one.frames).then_with(|| one.cmp(other)));
    }
}
