// SPDX-License-Identifier: Apache-2.0
//! Counters of a device, and how its ports are joined to each other and to the tester.

use std::collections::{BTreeMap, BTreeSet};

/// Where a port counts a dropped frame, beside the frames received and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropStage {
    /// Not counted as received.
    BeforeReceipt,
    /// Counted as received at the same port.
    Received,
    /// To be sent by the port, and not counted as sent.
    ToSend,
}

/// A counter of dropped frames.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DropCounter {
    /// Where it stands beside the frames received and sent.
    pub stage: DropStage,
    /// The reason, in the device's own words.
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

    /// Returns the frames dropped at a stage.
    pub(super) fn dropped(&self, stage: DropStage) -> u64 {
        let drops = self.drops.iter();
        let of_stage = drops.filter(|(counter, _)| counter.stage == stage);
        of_stage.fold(0, |sum, (_, frames)| sum.saturating_add(*frames))
    }
}

/// A counter of frames dropped at no port in particular.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitDrop {
    /// The part of the element that counts them, such as `router`.
    pub unit: String,
    /// The reason, in the device's own words.
    pub reason: String,
    /// True if its frames may be among those of other counters, or were not dropped at all: it explains only what no other
    /// counter of the element does.
    pub may_overlap: bool,
}

/// Counters of one element of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElementCounts {
    /// Its ports, by name.
    pub ports: BTreeMap<String, PortCounts>,
    /// Frames that it received and dropped at no port in particular.
    pub drops: BTreeMap<UnitDrop, u64>,
    /// Frames of its own that it may have sent, such as answers.
    pub made: u64,
}

/// Counters of a device at one instant: of each element by name, or the reason why the element's cannot be read.
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
    /// A port of an element, by their names.
    #[must_use]
    pub fn new(element: &str, port: &str) -> Self {
        Self {
            element: element.to_owned(),
            port: port.to_owned(),
        }
    }
}

/// How a device's ports are joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceLayout {
    /// The port on the other side of each of the tester's ports, if it is known.
    pub at_tester: Vec<Option<PortAt>>,
    /// Ports that are each other's other side.
    pub links: Vec<[PortAt; 2]>,
    /// Ports between which an element forwards both ways, and to no other.
    pub joins: Vec<[PortAt; 2]>,
}

impl DeviceLayout {
    /// Returns the ports of an element that frames of the tester pass; none if these are not known.
    pub(super) fn ports_of(&self, element: &str) -> Option<BTreeSet<&str>> {
        let in_pairs = self.links.iter().chain(&self.joins).flatten();
        let all = in_pairs.chain(self.at_tester.iter().flatten());
        let own = all.filter(|at| at.element == element);
        let ports: BTreeSet<&str> = own.map(|at| at.port.as_str()).collect();
        let is_known = self.at_tester.iter().all(Option::is_some);
        (is_known && !ports.is_empty()).then_some(ports)
    }
}

/// A counter that is lower than before: the element started anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WentBack {
    pub(super) at: PortAt,
    /// By how much.
    pub(super) frames: u64,
}

/// What counters grew by. One that went back did not grow.
#[derive(Debug, Default)]
struct Growth {
    went_back: Vec<WentBack>,
}

impl Growth {
    fn of(&mut self, at: &PortAt, before: u64, after: u64) -> u64 {
        after.checked_sub(before).unwrap_or_else(|| {
            self.went_back.push(WentBack {
                at: at.clone(),
                frames: before - after,
            });
            0
        })
    }
}

impl DeviceCounts {
    /// Returns what the counters grew by since an earlier look, and those that went back: nothing follows from the others of such
    /// an element, either.
    pub(super) fn since(&self, before: &Self) -> (Self, Vec<WentBack>) {
        let mut growth = Growth::default();
        let elements = self.elements.iter().map(|(name, after)| {
            let then = before.elements.get(name);
            let grown = match (then, after) {
                (Some(Ok(then)), Ok(after)) => {
                    let back = growth.went_back.len();
                    let grown = of_element(&mut growth, name, then, after);
                    match growth.went_back.len() == back {
                        true => Ok(grown),
                        false => Err("its counters went back: it started anew".to_owned()),
                    }
                }
                (Some(Err(why)), _) | (_, Err(why)) => Err(why.clone()),
                (None, Ok(_)) => Err("it was not read before the trial".to_owned()),
            };
            (name.clone(), grown)
        });
        let grown = Self {
            elements: elements.collect(),
        };
        (grown, growth.went_back)
    }
}

fn of_element(
    growth: &mut Growth,
    name: &str,
    before: &ElementCounts,
    after: &ElementCounts,
) -> ElementCounts {
    let none = PortCounts::default();
    let ports = after.ports.iter().map(|(port, now)| {
        let then = before.ports.get(port).unwrap_or(&none);
        let at = PortAt::new(name, port);
        let grown = PortCounts {
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
        (port.clone(), grown)
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
