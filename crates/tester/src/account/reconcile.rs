// SPDX-License-Identifier: Apache-2.0
//! Assignment of lost frames to places. Each frame must reach the next counter: between the tester and a port, between two ports, and
//! within an element. Missing frames were lost there; excess frames are a difference.

use std::collections::BTreeMap;

use super::counts::{
    DeviceCounts, DeviceLayout, DropStage, ElementCounts, PortAt, PortCounts, UnitDrop,
};
use super::places::{Accounted, Difference, DifferenceKind, LossAccount, LossPlace, LossReason};
use super::totals::PortTotals;
use crate::trial::TrialResult;

/// Place to which lost frames are assigned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LossSource {
    At(PortAt, String),
    Tester,
    Unknown,
}

/// Frames assigned to places over the whole trial.
#[derive(Debug, Default)]
struct LossClaims {
    frames: BTreeMap<LossSource, u64>,
    differences: Vec<Difference>,
    /// Frames that elements sent in addition to those received.
    made: u64,
}

impl LossClaims {
    fn add(&mut self, loser: LossSource, frames: u64) {
        if frames > 0 {
            let sum = self.frames.entry(loser).or_default();
            *sum = sum.saturating_add(frames);
        }
    }

    fn differ(&mut self, at: &PortAt, kind: DifferenceKind, frames: u64) {
        if frames == 0 {
            return;
        }
        let mut all = self.differences.iter_mut();
        let same =
            all.find(|one| (&one.element, &one.port, one.kind) == (&at.element, &at.port, kind));
        match same {
            Some(one) => one.frames = one.frames.saturating_add(frames),
            None => self.differences.push(Difference {
                element: at.element.clone(),
                port: at.port.clone(),
                kind,
                frames,
            }),
        }
    }

    /// Assigns the frames missing between two counters, or records a difference if the gap is negative.
    fn gap(&mut self, at: &PortAt, gap: i128, reason: LossReason, kind: DifferenceKind) {
        if gap < 0 {
            self.differ(at, kind, frames_of(gap.saturating_neg()));
        } else {
            self.add(at_port(at, reason), frames_of(gap));
        }
    }

    /// Does the same for a whole element. Counters that may include frames counted elsewhere, and ports not connected to the tester, can
    /// explain missing frames.
    fn gap_of_element(
        &mut self,
        name: &str,
        possible_sources: Vec<(LossSource, u64)>,
        made: u64,
        mut gap: i128,
    ) {
        for (loser, frames) in possible_sources {
            let explained = frames_of(gap).min(frames);
            self.add(loser, explained);
            gap = gap.saturating_sub(i128::from(explained));
        }
        let made = frames_of(gap.saturating_neg()).min(made);
        self.made = self.made.saturating_add(made);
        let reason = LossReason::NotSent;
        let kind = DifferenceKind::MoreSent;
        let gap = gap.saturating_add(i128::from(made));
        self.gap(&PortAt::new(name, ""), gap, reason, kind);
    }

    fn sum(&self) -> i128 {
        self.frames.values().map(|frames| i128::from(*frames)).sum()
    }

    fn differences_sum(&self) -> i128 {
        let frames = self.differences.iter();
        frames.map(|difference| i128::from(difference.frames)).sum()
    }
}

fn at_port(at: &PortAt, reason: LossReason) -> LossSource {
    LossSource::At(at.clone(), reason.name().to_owned())
}

fn at_unit(element: &str, counter: &UnitDrop) -> LossSource {
    LossSource::At(PortAt::new(element, &counter.unit), counter.reason.clone())
}

/// Returns the sum of two numbers of frames.
fn sum(one: u64, other: u64) -> i128 {
    i128::from(one).saturating_add(i128::from(other))
}

/// Returns the difference of two numbers of frames, which may be negative.
fn difference(one: u64, other: u64) -> i128 {
    i128::from(one).saturating_sub(i128::from(other))
}

fn frames_of(count: i128) -> u64 {
    u64::try_from(count.max(0)).unwrap_or(u64::MAX)
}

/// Increase of the counters of all elements during the trial.
struct CounterDeltas<'a> {
    elements: BTreeMap<&'a str, &'a ElementCounts>,
    layout: &'a DeviceLayout,
    totals: Vec<PortTotals>,
}

impl CounterDeltas<'_> {
    fn port(&self, at: &PortAt) -> Option<&PortCounts> {
        self.elements.get(at.element.as_str())?.ports.get(&at.port)
    }

    /// Returns the number of frames that arrived at a port, received or not.
    fn arrived(&self, at: &PortAt) -> Option<i128> {
        let port = self.port(at)?;
        Some(sum(port.received, port.dropped(DropStage::BeforeReceipt)))
    }

    fn sent(&self, at: &PortAt) -> Option<i128> {
        self.port(at).map(|port| i128::from(port.sent))
    }

    /// Returns the counters of the tester port connected to a port.
    fn tester_at(&self, at: &PortAt) -> Option<&PortTotals> {
        let mut ports = self.layout.at_tester.iter();
        let index = ports.position(|port| port.as_ref() == Some(at))?;
        self.totals.get(index)
    }

    fn peer_of(&self, at: &PortAt) -> Option<&PortAt> {
        self.layout.links.iter().find_map(|[one, other]| {
            if one == at {
                Some(other)
            } else {
                (other == at).then_some(one)
            }
        })
    }

    /// Returns the number of frames that the peer sent to a port.
    fn sent_to(&self, at: &PortAt) -> Option<i128> {
        match self.tester_at(at) {
            Some(totals) => Some(i128::from(totals.sent_frames)),
            None => self.sent(self.peer_of(at)?),
        }
    }

    /// Returns the number of frames that the peer got from a port.
    fn arrived_from(&self, at: &PortAt) -> Option<i128> {
        match self.tester_at(at) {
            Some(totals) => Some(sum(totals.received_frames, totals.receive_drop_frames)),
            None => self.arrived(self.peer_of(at)?),
        }
    }

    fn links(&self, claims: &mut LossClaims) {
        for (at, totals) in self.layout.at_tester.iter().zip(&self.totals) {
            claims.add(LossSource::Tester, totals.send_error_frames);
            claims.add(LossSource::Tester, totals.receive_drop_frames);
            let Some(at) = at else { continue };
            self.assign_not_received(at, claims);
            if let (Some(sent), Some(arrived)) = (self.sent(at), self.arrived_from(at)) {
                let reason = LossReason::NotArrived;
                claims.gap(
                    at,
                    sent.saturating_sub(arrived),
                    reason,
                    DifferenceKind::MoreReceived,
                );
            }
        }
        for [one, other] in &self.layout.links {
            self.assign_not_received(one, claims);
            self.assign_not_received(other, claims);
        }
    }

    /// Assigns the frames that were sent to a port and did not arrive.
    fn assign_not_received(&self, at: &PortAt, claims: &mut LossClaims) {
        if let (Some(sent), Some(arrived)) = (self.sent_to(at), self.arrived(at)) {
            let reason = LossReason::NotReceived;
            claims.gap(
                at,
                sent.saturating_sub(arrived),
                reason,
                DifferenceKind::MoreReceived,
            );
        }
    }

    /// Assigns the frames lost in elements, with and without a drop counter.
    fn inside(&self, claims: &mut LossClaims) {
        for (name, element) in &self.elements {
            let own_ports = self.layout.ports_of(name);
            let counts = |port: &str| own_ports.as_ref().is_none_or(|own| own.contains(port));
            let ports = element.ports.iter().filter(|(port, _)| counts(port));
            for (port, counters) in ports.clone() {
                let at = PortAt::new(name, port);
                for (counter, frames) in &counters.drops {
                    claims.add(LossSource::At(at.clone(), counter.reason.clone()), *frames);
                }
            }
            let units = element.drops.iter();
            let sure = units.filter(|(counter, _)| !counter.may_overlap);
            for (counter, frames) in sure.clone() {
                claims.add(at_unit(name, counter), *frames);
            }
            let joins = self.joins_of(name);
            if own_ports.is_none() {
                // Some of these ports carry other traffic, so missing frames prove nothing.
            } else if element.drops.values().any(|frames| *frames > 0) || joins.is_empty() {
                let gaps = ports
                    .map(|(_, counters)| passed_on(counters).saturating_sub(offered_to(counters)));
                let of_units = sure.map(|(_, frames)| i128::from(*frames));
                let gap = gaps.sum::<i128>().saturating_sub(of_units.sum());
                let others = element.ports.iter().filter(|(port, _)| !counts(port));
                let possible_sources = possible_sources(name, element, others);
                claims.gap_of_element(name, possible_sources, element.made, gap);
            } else {
                for [from, to] in joins {
                    if let (Some(input), Some(output)) = (self.port(from), self.port(to)) {
                        let gap = passed_on(input).saturating_sub(offered_to(output));
                        claims.gap(to, gap, LossReason::NotSent, DifferenceKind::MoreSent);
                    }
                }
            }
        }
    }

    /// Assigns the frames lost in elements without counters, by the counters of their peers.
    fn unread(&self, claims: &mut LossClaims, names: impl Iterator<Item = String>) {
        for name in names {
            let (mut arrived, mut left) = (Some(0_i128), Some(0_i128));
            for port in self.layout.ports_of(&name).unwrap_or_default() {
                let at = PortAt::new(&name, port);
                arrived = arrived
                    .zip(self.sent_to(&at))
                    .map(|(sum, more)| sum.saturating_add(more));
                left = left
                    .zip(self.arrived_from(&at))
                    .map(|(sum, more)| sum.saturating_add(more));
            }
            if let (Some(arrived), Some(left)) = (arrived, left) {
                let at = PortAt::new(&name, "");
                let reason = LossReason::NotCounted;
                claims.gap(
                    &at,
                    arrived.saturating_sub(left),
                    reason,
                    DifferenceKind::MoreSent,
                );
            }
        }
    }

    /// Returns both directions of each join of an element.
    fn joins_of(&self, element: &str) -> Vec<[&PortAt; 2]> {
        let joins = self.layout.joins.iter();
        let own = joins.filter(|[one, other]| one.element == element && other.element == element);
        own.flat_map(|[one, other]| [[one, other], [other, one]])
            .collect()
    }

    /// Returns the number of frames that the tester's ports sent, or tried to send, minus those received.
    fn missing(&self) -> i128 {
        let of_port = |totals: &PortTotals| {
            sum(totals.sent_frames, totals.send_error_frames)
                .saturating_sub(i128::from(totals.received_frames))
        };
        self.totals.iter().map(of_port).sum()
    }
}

/// Returns the counters of an element that may explain missing frames, the most certain first.
fn possible_sources<'a>(
    name: &str,
    element: &ElementCounts,
    others: impl Iterator<Item = (&'a String, &'a PortCounts)> + Clone,
) -> Vec<(LossSource, u64)> {
    let units = element.drops.iter();
    let units = units.filter(|(counter, _)| counter.may_overlap);
    let units = units.map(|(counter, frames)| (at_unit(name, counter), *frames));
    let dropped = others.clone().flat_map(|(port, counters)| {
        let drops = counters.drops.iter();
        let drops = drops.filter(|(counter, _)| counter.stage == DropStage::ToSend);
        drops.map(|(counter, frames)| {
            let at = PortAt::new(name, port);
            (LossSource::At(at, counter.reason.clone()), *frames)
        })
    });
    let sent = others.map(|(port, counters)| {
        let at = PortAt::new(name, port);
        (at_port(&at, LossReason::SentElsewhere), counters.sent)
    });
    units.chain(dropped).chain(sent).collect()
}

/// Returns the number of frames that a port received and did not drop.
fn passed_on(port: &PortCounts) -> i128 {
    difference(port.received, port.dropped(DropStage::Received))
}

/// Returns the number of frames that a port had to send.
fn offered_to(port: &PortCounts) -> i128 {
    sum(port.sent, port.dropped(DropStage::ToSend))
}

/// Lost frames without a place so far.
struct UnassignedLoss(u64);

impl UnassignedLoss {
    fn take(&mut self, frames: u64) -> u64 {
        let taken = frames.min(self.0);
        self.0 = self.0.saturating_sub(taken);
        taken
    }
}

/// Distributes `whole` in proportion to the claims, without a rest: the largest remainders get one frame more.
#[expect(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "the sum is not 0, a product of two u64 fits, and the shares and their rests add up to `whole`"
)]
pub(super) fn shared_out(
    whole: u64,
    claims: &BTreeMap<LossSource, u64>,
) -> Vec<(&LossSource, u64)> {
    let sum: u128 = claims.values().map(|claim| u128::from(*claim)).sum();
    if sum == 0 {
        return Vec::new();
    }
    // Both factors have 64 bits, so the product needs 128.
    let parts = claims.iter().map(|(loser, claim)| {
        let product = u128::from(*claim) * u128::from(whole);
        (loser, (product / sum) as u64, product % sum)
    });
    let mut parts: Vec<(&LossSource, u64, u128)> = parts.collect();
    let given: u64 = parts.iter().map(|(_, share, _)| share).sum();
    parts.sort_by(|one, other| other.2.cmp(&one.2).then(one.0.cmp(other.0)));
    let missing = usize::try_from(whole - given).unwrap_or(usize::MAX);
    let parts = parts.into_iter().enumerate();
    parts
        .map(|(index, (loser, share, _))| (loser, share + u64::from(index < missing)))
        .collect()
}

/// Assigns the lost frames of a trial to places, by the device's counters before and after it.
///
/// # Errors
/// The reason why there is no account, as a clause: the generator counts no totals, or the counters of no element could be read.
pub fn account(
    result: &TrialResult,
    layout: &DeviceLayout,
    before: &DeviceCounts,
    after: &DeviceCounts,
) -> Result<LossAccount, String> {
    let totals: Vec<PortTotals> = result.ports.iter().map(|port| port.totals).collect();
    if result.offered_frames > 0 && totals.iter().all(PortTotals::is_none) {
        return Err("the generator has no port counters".to_owned());
    }
    let (deltas, went_back) = after.since(before);
    let mut without_counters = BTreeMap::new();
    let mut elements = BTreeMap::new();
    for (name, counts) in &deltas.elements {
        match counts {
            Ok(counts) => {
                elements.insert(name.as_str(), counts);
            }
            Err(why) => {
                without_counters.insert(name.clone(), why.clone());
            }
        }
    }
    if elements.is_empty() && went_back.is_empty() {
        let all: Vec<String> = without_counters
            .iter()
            .map(|(name, why)| format!("{name}: {why}"))
            .collect();
        return Err(all.join("; "));
    }
    let deltas = CounterDeltas {
        elements,
        layout,
        totals,
    };
    let mut claims = LossClaims::default();
    deltas.links(&mut claims);
    deltas.inside(&mut claims);
    deltas.unread(&mut claims, without_counters.keys().cloned());
    let too_many = claims
        .differences_sum()
        .saturating_add(i128::from(claims.made));
    let unexplained = deltas
        .missing()
        .saturating_add(too_many)
        .saturating_sub(claims.sum());
    let nowhere = PortAt::default();
    if unexplained < 0 {
        let frames = frames_of(unexplained.saturating_neg());
        claims.differ(&nowhere, DifferenceKind::MoreDropped, frames);
    } else {
        claims.add(LossSource::Unknown, frames_of(unexplained));
    }
    for back in went_back {
        claims.differ(&back.at, DifferenceKind::DecreasedCounter, back.frames);
    }
    Ok(LossAccount {
        without_counters,
        ..reduced(result, &deltas, claims)
    })
}

/// Reduces the account of the whole trial to its counted part.
fn reduced(result: &TrialResult, deltas: &CounterDeltas<'_>, claims: LossClaims) -> LossAccount {
    let mut rest = UnassignedLoss(result.lost_frames);
    let mut places = Vec::new();
    let facing = |port: usize| {
        let at = deltas.layout.at_tester.get(port).cloned().flatten();
        at.unwrap_or_else(|| PortAt {
            element: String::new(),
            port: result
                .ports
                .get(port)
                .map_or_else(String::new, |port| port.name.clone()),
        })
    };
    let mut put = |at: PortAt, reason: &str, frames: u64| {
        if frames > 0 {
            places.push(LossPlace {
                element: at.element,
                port: at.port,
                reason: reason.to_owned(),
                frames,
            });
        }
    };
    let ports = || result.ports.iter().enumerate();
    for (index, port) in ports() {
        let frames = rest.take(port.refused_frames);
        put(facing(index), LossReason::ReceiveRingFull.name(), frames);
        let frames = rest.take(port.damaged_frames);
        put(facing(index), LossReason::Damaged.name(), frames);
    }
    let frames = rest.take(result.stale_frames);
    put(PortAt::default(), LossReason::Stale.name(), frames);

    let lost_before_frames = lost_before(&deltas.totals);
    let claimed = frames_of(claims.sum());
    let counted = rest.take(claimed.saturating_sub(lost_before_frames));
    let (mut tester_frames, mut unknown_frames) = (0_u64, 0_u64);
    for (loser, frames) in shared_out(counted, &claims.frames) {
        match loser {
            LossSource::At(at, reason) => put(at.clone(), reason, frames),
            LossSource::Tester => tester_frames = tester_frames.saturating_add(frames),
            LossSource::Unknown => unknown_frames = unknown_frames.saturating_add(frames),
        }
    }
    for (index, port) in ports() {
        let frames = rest.take(port.misdirected_frames);
        put(facing(index), LossReason::Misdirected.name(), frames);
    }
    // The tester's receive rings may have been full: up to that bound, a loss that no counter shows is the tester's own.
    unknown_frames = unknown_frames.saturating_add(rest.0);
    let own = unknown_frames.min(result.health.missed_at_most_frames);
    let mut account = LossAccount {
        lost_frames: result.lost_frames,
        places,
        tester_frames: tester_frames.saturating_add(own),
        unknown_frames: unknown_frames.saturating_sub(own),
        lost_before_frames,
        is_shared_out: counted > 0 && counted < claimed && claims.frames.len() > 1,
        differences: claims.differences,
        without_counters: BTreeMap::new(),
    };
    account.sort();
    account
}

/// Returns the number of frames lost in the learning and the warm-up.
fn lost_before(totals: &[PortTotals]) -> u64 {
    let of_port =
        |totals: &PortTotals| difference(totals.sent_before_frames, totals.received_before_frames);
    frames_of(totals.iter().map(of_port).sum())
}

impl TrialResult {
    /// Records where the frames of the trial were lost, by the device's counters before and after it.
    pub fn account_for(
        &mut self,
        layout: &DeviceLayout,
        before: &DeviceCounts,
        after: &DeviceCounts,
    ) {
        self.loss_account = Some(match account(self, layout, before, after) {
            Ok(account) => Accounted::Account(account),
            Err(why) => Accounted::Unavailable(why),
        });
    }

    /// Returns the loss account, if there is one.
    #[must_use]
    pub fn loss_places(&self) -> Option<&LossAccount> {
        match &self.loss_account {
            Some(Accounted::Account(account)) => Some(account),
            Some(Accounted::Unavailable(_)) | None => None,
        }
    }
}
