// SPDX-License-Identifier: Apache-2.0
//! Counters of a device, and the connections of its ports to each other and to the tester.

use std::collections::{BTreeMap, BTreeSet};

/// Stage at which a port drops a frame, relative to its counters of received and sent frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropStage {
    /// Dropped before the frame counts as received.
    BeforeReceipt,
    /// Dropped after the frame counted as received at the same port.
    Received,
    /// Dropped at the output port, before the frame counts as sent.
    ToSend,
}

/// A counter of dropped frames.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DropCounter {
    /// Stage of the drop, relative to the counters of received and sent frames.
    pub stage: DropStage,
    /// The reason, as the device names it.
    pub reason: String,
}

/// Counters of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames dropped.
    pub drops: BTreeMap<DropCounter, u64>,
}

impl PortCounts {
    /// Adds a counter of dropped frames.
    #[must_use]
    pub fn with_drops(mut self, stage: DropStage, reason: &str, frames: u64) -> Self {
        let counter = DropCounter {
            stage,
            reason: reason.to_owned(),
        };
        self.drops.insert(counter, frames);
        self
    }

    /// Returns the number of frames dropped at a stage.
    pub(super) fn dropped(&self, stage: DropStage) -> u64 {
        let drops = self.drops.iter();
        let of_stage = drops.filter(|(counter, _)| counter.stage == stage);
        of_stage.fold(0, |sum, (_, frames)| sum.saturating_add(*frames))
    }
}

/// Counter of frames dropped at no particular port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitDrop {
    /// The part of the element that counts them, such as `router`.
    pub unit: String,
    /// The reason, as the device names it.
    pub reason: String,
    /// True if other counters may include the same frames, or if the frames may not have been dropped at all. Such a counter explains
    /// only frames that no other counter of the element explains.
    pub may_overlap: bool,
}

/// Counters of one element of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElementCounts {
    /// Ports of the element, by name.
    pub ports: BTreeMap<String, PortCounts>,
    /// Frames that the element received and dropped at no particular port.
    pub drops: BTreeMap<UnitDrop, u64>,
    /// Frames that the element itself may have sent, such as replies.
    pub made: u64,
}

/// Counters of a device at one instant: of each element by name, or the reason why its counters cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// The elements.
    pub elements: BTreeMap<String, Result<ElementCounts, String>>,
}

/// A port of an element.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortAt {
    /// Name of the element.
    pub element: String,
    /// Name of the port.
    pub port: String,
}

impl PortAt {
    /// Creates the reference to a port from the names of element and port.
    #[must_use]
    pub fn new(element: &str, port: &str) -> Self {
        Self {
            element: element.to_owned(),
            port: port.to_owned(),
        }
    }
}

/// Connections of a device's ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceLayout {
    /// The device port connected to each tester port, if it is known.
    pub at_tester: Vec<Option<PortAt>>,
    /// Pairs of device ports that are connected to each other.
    pub links: Vec<[PortAt; 2]>,
    /// Pairs of ports between which an element forwards in both directions, and to no other port.
    pub joins: Vec<[PortAt; 2]>,
}

impl DeviceLayout {
    /// Returns the ports of an element that carry frames of the tester; `None` if they are unknown.
    pub(super) fn ports_of(&self, element: &str) -> Option<BTreeSet<&str>> {
        let in_pairs = self.links.iter().chain(&self.joins).flatten();
        let all = in_pairs.chain(self.at_tester.iter().flatten());
        let own = all.filter(|at| at.element == element);
        let ports: BTreeSet<&str> = own.map(|at| at.port.as_str()).collect();
        let is_known = self.at_tester.iter().all(Option::is_some);
        (is_known && !ports.is_empty()).then_some(ports)
    }
}

/// A counter that is lower than before: the element restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DecreasedCounter {
    pub(super) at: PortAt,
    /// Size of the decrease, frames.
    pub(super) frames: u64,
}

/// Increase of the counters. A counter that decreased is excluded.
#[derive(Debug, Default)]
struct CounterDelta {
    went_back: Vec<DecreasedCounter>,
}

impl CounterDelta {
    fn of(&mut self, at: &PortAt, before: u64, after: u64) -> u64 {
        after.checked_sub(before).unwrap_or_else(|| {
            self.went_back.push(DecreasedCounter {
                at: at.clone(),
                frames: before.saturating_sub(after),
            });
            0
        })
    }
}

impl DeviceCounts {
    /// Returns the increase since an earlier reading, and the counters that decreased. If one counter of an element decreased, its other
    /// counters prove nothing either.
    pub(super) fn since(&self, before: &Self) -> (Self, Vec<DecreasedCounter>) {
        let mut growth = CounterDelta::default();
        let elements = self.elements.iter().map(|(name, after)| {
            let then = before.elements.get(name);
            let deltas = match (then, after) {
                (Some(Ok(then)), Ok(after)) => {
                    let back = growth.went_back.len();
                    let deltas = of_element(&mut growth, name, then, after);
                    match growth.went_back.len() == back {
                        true => Ok(deltas),
                        false => Err("its counters decreased: the element restarted".to_owned()),
                    }
                }
                (Some(Err(why)), _) | (_, Err(why)) => Err(why.clone()),
                (None, Ok(_)) => Err("its counters were not read before the trial".to_owned()),
            };
            (name.clone(), deltas)
        });
        let deltas = Self {
            elements: elements.collect(),
        };
        (deltas, growth.went_back)
    }
}

fn of_element(
    growth: &mut CounterDelta,
    name: &str,
    before: &ElementCounts,
    after: &ElementCounts,
) -> ElementCounts {
    let none = PortCounts::default();
    let ports = after.ports.iter().map(|(port, now)| {
        let then = before.ports.get(port).unwrap_or(&none);
        let at = PortAt::new(name, port);
        let deltas = PortCounts {
            received: growth.of(&at, then.received, now.received),
            sent: growth.of(&at, then.sent, now.sent),
            drops: now
                .drops
                .iter()
                .map(|(counter, frames)| {
                    let then = then.drops.get(counter).copied().unwrap_or(0);
                    (counter.clone(), growth.of(&at, then, *frames))
                })
                .collect(),
        };
        (port.clone(), deltas)
    });
    let ports = ports.collect();
    let drops = after.drops.iter().map(|(counter, frames)| {
        let then = before.drops.get(counter).copied().unwrap_or(0);
        let at = PortAt::new(name, &counter.unit);
        (counter.clone(), growth.of(&at, then, *frames))
    });
    let drops = drops.collect();
    ElementCounts {
        ports,
        drops,
        made: growth.of(&PortAt::new(name, ""), before.made, after.made),
    }
}
