// SPDX-License-Identifier: Apache-2.0
//! Lane: the transmission and reception of one port in a trial, or of one of its queue pairs.

use quietwire_base::net_device;
use quietwire_dpdk::{Burst, Eal, Mempool, PortHandle, RxQueue, Scratch, TxQueue, cycles};

use crate::backlog::{Backlog, Ring};
use crate::clock::{ticks_of_us, ticks_per_second};
use crate::frame::Epoch;
use crate::latency::{Recorder, Scale};
use crate::narrow::{index, whole};
use crate::pacer::Pacer;
use crate::received::{Reader, Received};
use crate::series::LaneSeries;
use crate::watch::Slices;
use crate::writer::{Share, Writer};

/// Largest number of frames in a transmit burst. Short bursts keep a paced stream even.
pub(crate) const TX_BURST: u64 = 32;
/// Largest number of frames in a receive burst: the number that DPDK's memif driver copies at once.
const RX_BURST: usize = 32;
/// Largest number of frames in a receive burst that is read in place: it costs two clock readings, however many frames it has.
const IN_PLACE_BURST: usize = 64;
/// Number of frames after which a receive turn ends, so that transmission is not delayed for long.
const RX_FRAMES_A_TURN: u64 = 256;

/// Role of a lane in a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Role {
    /// Index of the port.
    pub(crate) port: usize,
    /// Share of the port in the rate, relative to an equal share of 1.
    pub(crate) share: f64,
    /// The lane among the lanes of its port: they share one schedule.
    pub(crate) of_port: Share,
    /// True if the port sends more than its learning frames.
    pub(crate) transmits: bool,
    /// True if the lane sends the low-rate stream of its port.
    pub(crate) has_low_rate: bool,
    /// Number of a burst's frames that the lane sends.
    pub(crate) burst: u64,
    /// Frames per second that the lane receives if the device loses none; `None` if the trial has no rate.
    pub(crate) arrival_rate_pps: Option<f64>,
}

/// Properties of a port's rings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rings {
    /// The receive ring.
    pub(crate) receive: Ring,
    /// Descriptors of the transmit ring; 0 if unknown.
    pub(crate) transmit: u16,
    /// True if a frame is lost when the peer's queue is full (shared memory, veth pairs); false if the tester waits.
    pub(crate) drops_when_full: bool,
    /// True if frames may be written and read where they lie in the rings.
    pub(crate) may_be_in_place: bool,
}

/// Transmission and reception of one port in one trial, or of one of its queue pairs.
#[derive(Debug)]
pub(crate) struct Lane<'port> {
    rx: &'port mut RxQueue,
    tx: &'port mut TxQueue,
    pool: &'port Mempool,
    link: Link<'port>,
    scale: Scale,
    /// True if a frame is lost when the peer's queue is full (shared memory, veth pairs); false if the tester waits.
    drops_when_full: bool,
    pub(crate) role: Role,
    pub(crate) writer: Writer,
    pub(crate) pacer: Option<Pacer>,
    low_rate: LowRate,
    /// Estimate of the frames that the receive ring had no space for.
    backlog: Backlog,
    /// Descriptors of the transmit ring; 0 if unknown.
    pub(crate) transmit_ring: u64,
    /// Time without service after which the lane counts as stalled, ticks: [`STALL_US`], or less if more frames are due then than may be sent in
    /// a row.
    stall: u64,
    /// Receive turns that empty a full ring.
    turns_of_ring: u64,
    tx_burst: Burst,
    rx_burst: Burst,
    /// True if the load is written and read in place, in the rings.
    is_in_place: bool,
    /// The peer may wait for an interrupt for frames written in place.
    is_unsettled: bool,
    scratch: Scratch,
    pub(crate) received: Received,
    pub(crate) sent: Sent,
    /// Frames sent, by transmit time, if the run observes losses.
    pub(crate) slices: Option<Slices>,
    /// Transmit times of the low-rate frames, ticks, by sequence number, if they are noted.
    pub(crate) low_rate_ticks: Vec<u64>,
    /// Totals over time.
    pub(crate) series: LaneSeries,
}

/// Link state of a port during a trial.
#[derive(Debug)]
struct Link<'port> {
    handle: &'port PortHandle,
    /// Carrier changes counted by the kernel before the trial. Polling the link instead costs a system call or more.
    changes_before: Option<u64>,
    is_up: bool,
    losses: u64,
}

/// Returns the number of carrier changes of a kernel interface (Documentation/ABI/testing/sysfs-class-net). Returns `None` for other
/// ports, whose link can only be polled.
fn carrier_changes(handle: &PortHandle) -> Option<u64> {
    let interface = handle.uri().interface()?;
    net_device::value(interface, "carrier_changes")
}

impl<'port> Link<'port> {
    fn new(handle: &'port PortHandle) -> Self {
        Self {
            handle,
            changes_before: carrier_changes(handle),
            is_up: true,
            losses: 0,
        }
    }

    fn sample_link(&mut self) {
        if self.changes_before.is_some() {
            return;
        }
        let is_up = self.handle.link_is_up();
        let is_lost = self.is_up && !is_up;
        self.losses = self.losses.saturating_add(u64::from(is_lost));
        self.is_up = is_up;
    }

    fn losses(&self) -> u64 {
        let changes = carrier_changes(self.handle).zip(self.changes_before);
        // Link loss and recovery are one change each.
        let lost = changes.map_or(0, |(now, before)| now.saturating_sub(before).div_ceil(2));
        self.losses.saturating_add(lost)
    }
}

/// Schedule of the low-rate stream, ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LowRate {
    next: u64,
    interval: u64,
    /// Frames that were skipped or sent late.
    missed: u64,
}

impl Default for LowRate {
    /// Returns an empty schedule.
    fn default() -> Self {
        Self {
            next: u64::MAX,
            interval: 0,
            missed: 0,
        }
    }
}

impl LowRate {
    /// Creates a schedule of `rate_pps` frames per second from `start` on.
    pub(crate) fn new(rate_pps: f64, start: u64, ticks_per_second: u64) -> Self {
        if rate_pps <= 0.0 {
            return Self::default();
        }
        Self {
            next: start,
            interval: whole(ticks_per_second as f64 / rate_pps).max(1),
            missed: 0,
        }
    }

    /// Advances to the next frame after `now`. Frames that a stall delayed are skipped, so that frames stay apart. The frame sent now may
    /// be late as well.
    fn advance(&mut self, now: u64, is_late: bool) {
        let late = now.saturating_sub(self.next);
        let passed = late.checked_div(self.interval).unwrap_or(0);
        let until_next = passed.saturating_add(1).saturating_mul(self.interval);
        self.next = self.next.saturating_add(until_next);
        let missed = passed.saturating_add(u64::from(is_late));
        self.missed = self.missed.saturating_add(missed);
    }
}

/// Frames sent by a lane in the counted part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) bursts: u64,
    pub(crate) late_bursts: u64,
    pub(crate) refused: u64,
    pub(crate) no_buffers: u64,
    /// Time of the latest burst; 0 before the first.
    pub(crate) last_tick: u64,
    /// Ticks spent on generating frames, without the driver, but with the ring if they are written in place.
    pub(crate) generate_ticks: u64,
    /// Ticks spent on checking received frames, without the driver, but with the ring if they are read in place.
    pub(crate) check_ticks: u64,
    /// Number of frames received, of any kind.
    pub(crate) checked: u64,
    /// Time from each burst to the next, nanoseconds, if the lane was served all the time.
    pub(crate) gaps: Recorder,
    /// Those times in which the lane was not served for more than [`STALL_US`], nanoseconds.
    pub(crate) stalled_gaps: Recorder,
    /// Sum of all times that are at least [`PAUSE_NS`], nanoseconds.
    pub(crate) pauses_ns: u64,
    /// When the lane was last served; 0 before the first time.
    pub(crate) served: u64,
    /// True if the lane was not served for more than [`STALL_US`] since the latest burst.
    pub(crate) is_stalled: bool,
}

impl Sent {
    /// Records that the lane is served at `now`. Returns true if it was not served before for longer than `stall`, ticks.
    #[inline(always)]
    fn serve(&mut self, now: u64, stall: u64) -> bool {
        let is_stalled = self.served > 0 && now.saturating_sub(self.served) > stall;
        self.is_stalled |= is_stalled;
        self.served = now;
        is_stalled
    }

    /// Records a burst at `now`.
    #[inline(always)]
    fn record_burst(&mut self, now: u64, scale: Scale) {
        if self.last_tick > 0 {
            let gap = scale.ns(now.saturating_sub(self.last_tick));
            let gaps = if self.is_stalled {
                &mut self.stalled_gaps
            } else {
                &mut self.gaps
            };
            gaps.record(gap, 1);
            if gap >= PAUSE_NS {
                self.pauses_ns = self.pauses_ns.saturating_add(gap);
            }
        }
        self.is_stalled = false;
        self.last_tick = now;
    }
}

/// Longest time without service after which a lane does not count as stalled, microseconds.
pub(crate) const STALL_US: u64 = 100;
/// The same at the highest rates, microseconds. A turn of the loop over all lanes is shorter.
const STALL_MIN_US: u64 = 20;

/// Time between two bursts that counts as a pause of an unpaced tester, nanoseconds.
const PAUSE_NS: u64 = 100_000;

impl<'port> Lane<'port> {
    pub(crate) fn new(
        eal: &Eal,
        (rx, tx, handle): (&'port mut RxQueue, &'port mut TxQueue, &'port PortHandle),
        pool: &'port Mempool,
        rings: Rings,
        role: Role,
        writer: Writer,
        observed: Received,
    ) -> Self {
        let is_in_place = rings.may_be_in_place
            && rings.drops_when_full
            && rx.is_readable_in_place()
            && tx.is_writable_in_place();
        Self {
            is_in_place,
            is_unsettled: false,
            scratch: Scratch::default(),
            rx,
            tx,
            pool,
            link: Link::new(handle),
            scale: Scale::new(ticks_per_second()),
            drops_when_full: rings.drops_when_full,
            role,
            writer,
            pacer: None,
            low_rate: LowRate::default(),
            backlog: Backlog::new(rings.receive, role.arrival_rate_pps, ticks_per_second()),
            transmit_ring: rings.transmit.into(),
            stall: ticks_of_us(STALL_US, ticks_per_second()),
            turns_of_ring: (rings.receive.frames() / RX_FRAMES_A_TURN).saturating_add(1),
            tx_burst: Burst::new(eal),
            rx_burst: Burst::new(eal),
            received: observed,
            sent: Sent::default(),
            slices: None,
            low_rate_ticks: Vec::new(),
            series: LaneSeries::default(),
        }
    }

    /// Makes the lane note the transmit times of at most `frames` low-rate frames.
    pub(crate) fn note_low_rate(&mut self, frames: usize) {
        self.low_rate_ticks = Vec::with_capacity(frames);
    }

    /// Begins a part of the trial, with this epoch and this schedule.
    pub(crate) fn begin(&mut self, epoch: Epoch, pacer: Pacer, low_rate: LowRate) {
        self.low_rate = low_rate;
        self.writer.begin(epoch);
        self.sent = Sent::default();
        self.low_rate_ticks.clear();
        self.backlog.begin(pacer.start());
        let [shortest, longest] =
            [STALL_MIN_US, STALL_US].map(|us| ticks_of_us(us, ticks_per_second()));
        self.stall = pacer
            .catch_up_ticks(TX_BURST)
            .map_or(longest, |ticks| ticks.clamp(shortest, longest));
        self.pacer = self.role.transmits.then_some(pacer);
    }

    /// Returns the frames of this part of the trial that were written, without learning frames.
    pub(crate) fn written(&self) -> u64 {
        self.pacer.as_ref().map_or(0, |_| self.writer.written())
    }

    /// Returns true if nothing is left to send.
    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        self.pacer.as_ref().is_none_or(Pacer::is_done)
    }

    /// Sends the due frames, at most a burst. Returns their number.
    #[inline(always)]
    pub(crate) fn transmit(&mut self) -> u64 {
        let Some(pacer) = &mut self.pacer else {
            return 0;
        };
        // Frames are left over only if a full queue makes the tester wait, which is no stall.
        let has_waited = !self.tx_burst.is_empty();
        if has_waited {
            self.tx.send(&mut self.tx_burst);
            if !self.tx_burst.is_empty() {
                return 0;
            }
        }
        let now = cycles::now();
        let is_stalled = self.sent.serve(now, self.stall) && !has_waited;
        let of_low_rate = now >= self.low_rate.next;
        let stamp = pacer.next_due().map_or(now, |due| due.min(now));
        let unsent = pacer.unsent();
        let due = pacer.due(now, if of_low_rate { 1 } else { TX_BURST });
        if is_stalled {
            pacer.note_stall(unsent);
        }
        if due.frames == 0 {
            if self.is_unsettled {
                self.settle();
            }
            return 0;
        }
        let frames = index(due.frames);
        if self.is_in_place && !of_low_rate {
            let sent = self
                .writer
                .send_in_place(self.tx, &mut self.scratch, frames, stamp);
            let refused = frames.saturating_sub(sent) as u64;
            self.sent.refused = self.sent.refused.wrapping_add(refused);
            self.is_unsettled = true;
        } else {
            if !self.tx_burst.allocate(self.pool, frames) {
                self.sent.no_buffers = self.sent.no_buffers.saturating_add(due.frames);
                return due.frames;
            }
            if of_low_rate {
                self.low_rate.advance(now, due.late_frames > 0);
                self.writer.write_low_rate(&mut self.tx_burst, stamp);
                // The packet path does not allocate memory.
                if self.low_rate_ticks.len() < self.low_rate_ticks.capacity() {
                    self.low_rate_ticks.push(stamp);
                }
            } else {
                self.writer.write(&mut self.tx_burst, stamp);
            }
        }
        let spent = cycles::now().saturating_sub(now);
        self.sent.generate_ticks = self.sent.generate_ticks.wrapping_add(spent);
        if let Some(slices) = &mut self.slices {
            slices.add(now, due.frames);
        }
        if !self.tx_burst.is_empty() {
            self.tx.send(&mut self.tx_burst);
        }
        self.sent.bursts = self.sent.bursts.wrapping_add(1);
        self.sent.late_bursts = self.sent.late_bursts.wrapping_add(u64::from(due.late));
        self.sent.record_burst(now, self.scale);
        if self.drops_when_full {
            let refused = self.tx_burst.len() as u64;
            self.sent.refused = self.sent.refused.wrapping_add(refused);
            self.tx_burst.free();
        }
        due.frames
    }

    /// Interrupts a peer that waits for frames written in place. Call it if no burst may follow soon.
    #[cold]
    pub(crate) fn settle(&mut self) {
        self.is_unsettled = false;
        self.tx.settle_in_place();
    }

    /// Receives what has come, a few bursts at most; returns how many frames have. `before` is a tick not later than now.
    #[inline(always)]
    pub(crate) fn receive(&mut self, before: u64) -> u64 {
        let mut all = 0_u64;
        let most = if self.is_in_place {
            IN_PLACE_BURST
        } else {
            RX_BURST
        };
        while all < RX_FRAMES_A_TURN {
            let received = if self.is_in_place {
                self.read_in_place()
            } else {
                self.receive_burst()
            };
            if received == 0 {
                self.record_empty_ring(before);
                return all;
            }
            self.sent.checked = self.sent.checked.wrapping_add(received as u64);
            all = all.wrapping_add(received as u64);
            self.backlog.take(received as u64);
            if received < most {
                self.record_empty_ring(before);
                return all;
            }
        }
        all
    }

    /// Receives a burst in packet buffers, and checks its frames. Returns their number.
    #[inline(always)]
    fn receive_burst(&mut self) -> usize {
        let received = self.rx.receive(&mut self.rx_burst, RX_BURST);
        if received == 0 {
            return 0;
        }
        // This CPU has just copied frames of shared memory, so they are in its cache.
        if !self.drops_when_full {
            self.rx_burst.prefetch();
        }
        let now = cycles::now();
        self.received.record(self.rx_burst.frames(), now);
        self.rx_burst.free();
        let spent = cycles::now().saturating_sub(now);
        self.sent.check_ticks = self.sent.check_ticks.wrapping_add(spent);
        received
    }

    /// Checks a burst of frames where they lie in the ring. Returns their number.
    #[inline(always)]
    fn read_in_place(&mut self) -> usize {
        let mut reader = Reader::new(&mut self.received);
        let received = self
            .rx
            .read_in_place(IN_PLACE_BURST, &mut self.scratch, &mut reader);
        let began = reader.end();
        if received > 0 {
            let spent = cycles::now().saturating_sub(began);
            self.sent.check_ticks = self.sent.check_ticks.wrapping_add(spent);
        }
        received
    }

    /// Records that the receive ring is empty.
    #[inline(always)]
    fn record_empty_ring(&mut self, before: u64) {
        if self.backlog.may_have_been_full() {
            self.backlog.end_row(cycles::now(), self.sent.checked);
        }
        self.backlog.begin_row(before);
    }

    /// Receives until the ring is empty, but at most as many frames as the ring holds.
    #[cold]
    pub(crate) fn empty_ring(&mut self) {
        for _ in 0..self.turns_of_ring {
            self.receive(cycles::now());
            if self.backlog.is_empty() {
                break;
            }
        }
    }

    /// Ends the reception.
    pub(crate) fn end(&mut self) {
        self.empty_ring();
        self.record_empty_ring(cycles::now());
    }

    /// Returns the upper bound of the frames of this part of the trial that found the receive ring full.
    pub(crate) fn missed_at_most(&self) -> u64 {
        self.backlog.missed_at_most()
    }

    /// Returns the number of low-rate frames that were skipped or sent late.
    pub(crate) fn low_rate_missed(&self) -> u64 {
        self.low_rate.missed
    }

    /// Checks the link of the port.
    #[cold]
    pub(crate) fn look_at_link(&mut self) {
        self.link.sample_link();
    }

    /// Notes the totals, if an interval of the series has ended.
    #[cold]
    pub(crate) fn note_totals(&mut self, now: u64) {
        if self.series.is_due(now) {
            let offered = self.offered();
            self.series.add(now, offered, &mut self.received.latency);
        }
    }

    /// Notes the totals after the drain.
    pub(crate) fn end_series(&mut self, now: u64) {
        let offered = self.offered();
        self.series.end(now, offered, &mut self.received.latency);
    }

    fn offered(&self) -> u64 {
        self.pacer.as_ref().map_or(0, Pacer::offered)
    }

    /// Returns how often the port lost its link since the trial began.
    pub(crate) fn link_losses(&self) -> u64 {
        self.link.losses()
    }

    /// Frees frames that wait for a full queue and returns their number. They were not offered.
    pub(crate) fn abandon_waiting(&mut self) -> u64 {
        let waiting = self.tx_burst.len() as u64;
        self.tx_burst.free();
        waiting
    }

    /// Sends the learning frames (RFC 2889, section 5.6.3), one from each source address, in bursts. A receive turn follows each burst.
    pub(crate) fn learning_turn(&mut self) -> bool {
        let left = self.writer.learning_frames_left();
        if left > 0
            && self.tx_burst.is_empty()
            && self.tx_burst.allocate(self.pool, left.min(index(TX_BURST)))
        {
            self.writer.write_learning(&mut self.tx_burst);
        }
        self.tx.send(&mut self.tx_burst);
        self.tx_burst.is_empty() && self.writer.learning_frames_left() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_bursts_in_which_the_tester_stalled_are_apart() {
        let scale = Scale::new(1_000_000_000);
        let mut sent = Sent::default();
        // Served every 50 ticks, with a stall from 1150 to 1300. A burst at each of these times.
        let bursts = [1000, 1100, 1300, 1350];
        let served = (1000..=1150).step_by(50).chain((1300..=1400).step_by(50));
        for now in served {
            assert_eq!(sent.serve(now, 100), now == 1300, "{now}");
            if bursts.contains(&now) {
                sent.record_burst(now, scale);
            }
        }
        assert_eq!(
            (sent.gaps.samples(), sent.gaps.summary().unwrap().max_ns),
            (2, 100)
        );
        let stalled = sent.stalled_gaps.summary().unwrap();
        assert_eq!((stalled.samples, stalled.max_ns), (1, 200));
    }

    #[test]
    fn a_low_rate_stream_counts_what_a_stall_left_out_or_made_late() {
        // Every 100 ticks from 1000 on.
        let mut stream = LowRate::new(10.0, 1000, 1000);
        stream.advance(1000, false);
        stream.advance(1199, false);
        assert_eq!((stream.next, stream.missed), (1200, 0));
        // The frames of 1300 and 1400 are skipped, and that of 1200 is late.
        stream.advance(1450, true);
        assert_eq!((stream.next, stream.missed), (1500, 3));
    }

    #[test]
    fn the_second_frame_of_the_lowest_rates_is_never_due() {
        // The interval exceeds the counter.
        let mut stream = LowRate::new(1e-12, 1000, 1_000_000_000);
        stream.advance(1000, false);
        assert_eq!((stream.next, stream.missed), (u64::MAX, 0));
    }
}
