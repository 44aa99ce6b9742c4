// SPDX-License-Identifier: Apache-2.0
//! Connections: bursts through the tracker of `crates/tables`, alone or with rules, and their records.

use std::net::IpAddr;

use quietwire_base::BURST_MAX;
use quietwire_tables::connections::{
    Connection, ConnectionFilter, ConnectionInfo, CtState, Direction, LabelBits, MarkBits, Packet,
    Settings, SettingsError, TIMEOUT_MAX_S, Tracked, Tracker, ZONES_MAX,
};
use quietwire_tables::filter::Verdict;

use crate::classifier::{BY_REFUSAL, Classifier, Frame};
use crate::codes::{Codes, state_of};
use crate::layout::{
    ConnectionRecord, LabelRecord, TRACKER_LABELS, TrackerCounters, TrackerSettings, VerdictRecord,
};
use crate::status::Status;

/// Latest time, seconds: `QW_SECONDS_MAX`. Times of expiry beyond it fit into their numbers.
pub(crate) const SECONDS_MAX: u32 = 1 << 31;
/// Entries of a table that one request reads, at most.
const LIST_BUDGET: usize = 65_536;
/// Set in every number of a connection, so that none is 0.
const IS_CONNECTION: u64 = 1 << 63;

/// The tracker of a handle.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    tracker: Tracker,
    has_labels: bool,
    codes: Codes,
    packets: [Packet; BURST_MAX],
    tracked: [Tracked; BURST_MAX],
    /// Labels of the connections of a burst, for rules that compare them.
    labels: [u128; BURST_MAX],
}

/// Returns the number of a connection.
fn number_of(connection: Connection) -> u64 {
    IS_CONNECTION | connection.to_bits()
}

fn octets_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// Returns the settings of a tracker.
fn settings_of(settings: &TrackerSettings) -> Option<Settings> {
    let zones = settings.zones.max(1);
    let is_in_range = zones <= u32::from(ZONES_MAX) && settings.flags & !TRACKER_LABELS == 0;
    let zone_limit = match settings.zone_limit {
        // Only the table is a limit.
        0 => u32::MAX,
        limit => limit,
    };
    let mut checked = Settings::of_size(settings.entries_max);
    checked.zone_limits = vec![zone_limit; usize::try_from(zones).ok().filter(|_| is_in_range)?];
    for (number, seconds) in settings.timeouts_s.iter().enumerate() {
        if *seconds > 0 {
            let state = state_of(number).filter(|_| *seconds <= TIMEOUT_MAX_S)?;
            checked.timeouts = checked.timeouts.with(state, *seconds);
        }
    }
    Some(checked)
}

impl ConnectionTable {
    /// Creates a tracker.
    ///
    /// # Errors
    /// [`Status::Argument`], [`Status::Memory`].
    pub(crate) fn new(settings: &TrackerSettings) -> Result<Self, Status> {
        let status_of = |error: SettingsError| match error {
            SettingsError::Memory(_) => Status::Memory,
            _ => Status::Argument,
        };
        let has_labels = settings.flags & TRACKER_LABELS != 0;
        let settings = settings_of(settings).ok_or(Status::Argument)?;
        let mut tracker = Tracker::new(&settings).map_err(status_of)?;
        if has_labels {
            tracker.allow_labels().map_err(status_of)?;
        }
        Ok(Self {
            tracker,
            has_labels,
            codes: Codes::new(),
            packets: [Packet::UNTRACKED; BURST_MAX],
            tracked: [Tracked::UNTRACKED; BURST_MAX],
            labels: [0; BURST_MAX],
        })
    }

    /// Reads and tracks a burst. Returns the number of its packets.
    fn track_burst(&mut self, frames: &[Frame<'_>], now_s: u32) -> usize {
        let count = frames.len().min(BURST_MAX);
        for (packet, frame) in self.packets.iter_mut().zip(frames) {
            *packet = Packet::of_frame(frame.octets, frame.length as usize, frame.zone);
        }
        let packets = self.packets.get(..count).unwrap_or_default();
        self.tracker.track(packets, now_s, &mut self.tracked);
        count
    }

    /// Adds state and connection to a record.
    fn complete(codes: &Codes, tracked: &Tracked, record: &mut VerdictRecord) {
        record.ct_state = codes.of_ct_state(tracked.state);
        record.invalid_reason = codes.of_reason(tracked.reason);
        record.is_reply = u8::from(tracked.direction == Direction::Reply);
        record.mark = tracked.mark;
        record.connection = tracked.connection.map_or(0, number_of);
    }

    /// Tracks a burst without creating connections.
    pub(crate) fn track(
        &mut self,
        frames: &[Frame<'_>],
        now_s: u32,
        records: &mut [VerdictRecord],
    ) {
        let count = self.track_burst(frames, now_s);
        for (tracked, record) in self.tracked.iter().take(count).zip(records) {
            *record = VerdictRecord {
                action: 0,
                ..VerdictRecord::DROP
            };
            Self::complete(&self.codes, tracked, record);
        }
    }

    /// Reads the labels of the connections of the first packets of a burst.
    fn read_labels(&mut self, count: usize) {
        let tracker = &self.tracker;
        for (tracked, label) in self.tracked.iter().take(count).zip(&mut self.labels) {
            *label = tracked.connection.map_or(0, |one| tracker.label(one));
        }
    }

    /// Tracks a burst, judges it by rules, and creates the connections of accepted packets.
    ///
    /// # Errors
    /// [`Status::Argument`] if rules compare or set labels, and the tracker has none.
    pub(crate) fn filter(
        &mut self,
        classifier: &Classifier,
        frames: &[Frame<'_>],
        now_s: u32,
        records: &mut [VerdictRecord],
    ) -> Result<(), Status> {
        if classifier.requires_labels() && !self.has_labels {
            return Err(Status::Argument);
        }
        let count = self.track_burst(frames, now_s);
        if classifier.compares_labels() {
            self.read_labels(count);
        }
        let verdicts = classifier.judge(frames, &self.tracked, &self.labels);
        let sets_values = classifier.sets_values();
        let results = self.packets.iter().zip(&mut self.tracked).take(count);
        for (((packet, tracked), verdict), record) in results.zip(verdicts).zip(records) {
            let mut verdict = verdict;
            if is_first(tracked) && verdict.accepts() {
                match self.tracker.commit(packet, now_s) {
                    Ok(connection) => tracked.connection = Some(connection),
                    Err(refusal) => verdict = Verdict::Refused(refusal),
                }
            }
            if sets_values {
                set_values(&mut self.tracker, tracked, classifier, verdict);
            }
            *record = classifier.record(verdict);
            Self::complete(classifier.codes(), tracked, record);
        }
        Ok(())
    }

    /// Creates the connections of packets whose records accept them, and say that they are new and have none.
    pub(crate) fn commit(
        &mut self,
        frames: &[Frame<'_>],
        now_s: u32,
        records: &mut [VerdictRecord],
    ) {
        for (frame, record) in frames.iter().zip(records) {
            let is_new = record.ct_state == self.codes.of_ct_state(CtState::New);
            if !is_new || record.connection != 0 || record.action != 0 {
                continue;
            }
            let packet = Packet::of_frame(frame.octets, frame.length as usize, frame.zone);
            match self.tracker.commit(&packet, now_s) {
                Ok(connection) => record.connection = number_of(connection),
                Err(refusal) => {
                    record.action = VerdictRecord::DROP.action;
                    record.cause = BY_REFUSAL;
                    record.reason = self.codes.of_refusal(refusal);
                }
            }
        }
    }

    /// Removes expired connections in at most `budget` steps. Returns their number.
    pub(crate) fn expire(&mut self, now_s: u32, budget: u32) -> u32 {
        let removed = self.tracker.expire(now_s, budget as usize);
        u32::try_from(removed).unwrap_or(u32::MAX)
    }

    fn record_of(&self, info: &ConnectionInfo) -> ConnectionRecord {
        ConnectionRecord {
            source: octets_of(info.source.address),
            destination: octets_of(info.destination.address),
            source_port: info.source.port,
            destination_port: info.destination.port,
            zone: info.zone,
            protocol: info.protocol,
            state: self.codes.of_state(info.state),
            is_ipv6: u8::from(info.source.address.is_ipv6()),
            is_replied: u8::from(info.is_replied),
            mark: info.mark,
            expires_in_s: info.expires_in_s,
            packets: info.packets,
            octets: info.octets,
            ..ConnectionRecord::EMPTY
        }
    }

    /// Returns a connection by its number.
    ///
    /// # Errors
    /// [`Status::Handle`] if it has ended.
    pub(crate) fn get(&self, number: u64) -> Result<ConnectionRecord, Status> {
        let connection = connection_of(number)?;
        let info = self.tracker.get(connection).ok_or(Status::Handle)?;
        Ok(self.record_of(&info))
    }

    /// Sets the mark of a connection.
    ///
    /// # Errors
    /// [`Status::Handle`] if it has ended.
    pub(crate) fn set_mark(&mut self, number: u64, mark: u32) -> Result<(), Status> {
        let connection = connection_of(number)?;
        if self.tracker.set_mark(connection, mark) {
            Ok(())
        } else {
            Err(Status::Handle)
        }
    }

    /// Sets bits of the mark of a connection.
    ///
    /// # Errors
    /// [`Status::Argument`] for impossible bits, [`Status::Handle`] if the connection has ended.
    pub(crate) fn set_mark_bits(
        &mut self,
        number: u64,
        (mark, mask): (u32, u32),
    ) -> Result<(), Status> {
        let connection = connection_of(number)?;
        let bits = MarkBits::new(mark, mask).ok_or(Status::Argument)?;
        if self.tracker.set_mark_bits(connection, bits) {
            Ok(())
        } else {
            Err(Status::Handle)
        }
    }

    /// Returns the label of a connection: 0 if the tracker has no labels.
    ///
    /// # Errors
    /// [`Status::Handle`] if the connection has ended.
    pub(crate) fn label(&self, number: u64) -> Result<LabelRecord, Status> {
        let info = self.tracker.get(connection_of(number)?);
        let info = info.ok_or(Status::Handle)?;
        Ok(LabelRecord::new(info.label))
    }

    /// Sets bits of the label of a connection.
    ///
    /// # Errors
    /// [`Status::Argument`] for impossible bits, or if the tracker has no labels; [`Status::Handle`] if the connection has ended.
    pub(crate) fn set_label(
        &mut self,
        number: u64,
        (label, mask): (u128, u128),
    ) -> Result<(), Status> {
        let connection = connection_of(number)?;
        let bits = LabelBits::new(label, mask).filter(|_| self.has_labels);
        let bits = bits.ok_or(Status::Argument)?;
        if self.tracker.set_label(connection, bits) {
            Ok(())
        } else {
            Err(Status::Handle)
        }
    }

    /// Reads the labels of the connections of verdicts: 0 for one without a connection.
    ///
    /// # Errors
    /// [`Status::Handle`] if one of them has ended.
    pub(crate) fn labels_of(
        &self,
        verdicts: &[VerdictRecord],
        labels: &mut [LabelRecord],
    ) -> Result<(), Status> {
        for (verdict, label) in verdicts.iter().zip(labels) {
            *label = match verdict.connection {
                0 => LabelRecord::default(),
                number => self.label(number)?,
            };
        }
        Ok(())
    }

    /// Calls a function with each of at most `count` connections from position `from` on, and its number from 0. Returns the number of
    /// connections and the position to continue from, `u32::MAX` at the end.
    pub(crate) fn list(
        &self,
        from: u32,
        count: usize,
        mut call: impl FnMut(usize, &ConnectionRecord),
    ) -> (usize, u32) {
        let page = self
            .tracker
            .list(&ConnectionFilter::default(), from, count, LIST_BUDGET);
        for (number, info) in page.connections.iter().enumerate() {
            call(number, &self.record_of(info));
        }
        (page.connections.len(), page.next.unwrap_or(u32::MAX))
    }

    /// Returns the counters.
    pub(crate) fn counters(&self) -> TrackerCounters {
        let counters = self.tracker.counters();
        TrackerCounters {
            connections: self.tracker.len() as u64,
            created: counters.created,
            expired: counters.expired,
            dropped_early: counters.dropped_early,
            refused: counters.refused.iter().sum(),
            invalid: counters.invalid.iter().sum(),
            octets: self.tracker.octets() as u64,
        }
    }
}

/// Sets mark and label of the connection of an accepted packet, if the rule that decided on it sets them.
fn set_values(
    tracker: &mut Tracker,
    tracked: &mut Tracked,
    classifier: &Classifier,
    verdict: Verdict,
) {
    let Some(connection) = tracked.connection.filter(|_| verdict.accepts()) else {
        return;
    };
    let (mark, label) = classifier.values_of(verdict);
    if let Some(bits) = mark {
        tracker.set_mark_bits(connection, bits);
        let info = tracker.get(connection);
        tracked.mark = info.map_or(tracked.mark, |info| info.mark);
    }
    if let Some(bits) = label {
        tracker.set_label(connection, bits);
    }
}

/// Returns true for a packet that begins a connection once it is accepted.
fn is_first(tracked: &Tracked) -> bool {
    tracked.state == CtState::New && tracked.connection.is_none()
}

fn connection_of(number: u64) -> Result<Connection, Status> {
    let bits = number & !IS_CONNECTION;
    let connection = Connection::from_bits(bits).filter(|_| bits != number);
    connection.ok_or(Status::Handle)
}
