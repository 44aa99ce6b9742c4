// SPDX-License-Identifier: Apache-2.0
//! Frames with TCP data of up to 64 KiB: handed on as they are where the peer takes them, cut into segments else.
//!
//! Only in switches that have a port with `tso=on`: in others no thread comes here.

use quietwire_dpdk::{Burst, Eal, HeaderLengths, Mbuf, Mempool, TxQueue};
use quietwire_packet::{SEGMENT_HEADERS_MAX, TcpFrame, VLAN_TAG_LENGTH};

use super::lengths::measure;
use crate::counters::PortCounters;
use quietwire_tables::drops::PortDrop;

/// Segments of one frame at most. A guest that wants its data in smaller pieces would have the switch work for it without
/// measure: 64 KiB in segments of 256 octets are as many.
const SEGMENTS_MAX: usize = 256;

/// What cutting needs.
#[derive(Clone, Debug)]
pub(crate) struct Cutter {
    /// Where segments come from.
    pool: Mempool,
    /// Longest frame that goes out, octets without FCS and without tags.
    length_max: usize,
}

impl Cutter {
    pub(crate) const fn new(pool: Mempool, length_max: usize) -> Self {
        Self { pool, length_max }
    }

    /// Whether a frame is to be cut where nobody else does it.
    pub(super) fn concerns(&self, frame: &Mbuf<'_>) -> bool {
        frame.length() as usize > self.length_max && frame.segment_size().is_some()
    }

    /// Calls `sink` with each segment of a frame, in order. False when the frame is none that can be cut, when there are too
    /// many segments, or no buffers for them: the rest is lost then.
    pub(super) fn cut<'frame>(
        &self,
        frame: &'frame Mbuf<'_>,
        mut sink: impl FnMut(Mbuf<'frame>),
    ) -> bool {
        let Some(headers) = headers(frame) else {
            return false;
        };
        let Some(size) = self.data_in_each(&headers, frame) else {
            return false;
        };
        let (begin, data) = (headers.headers_length(), headers.data_length());
        let count = data.div_ceil(size);
        if count > SEGMENTS_MAX {
            return false;
        }
        for number in 0..count {
            let offset = number * size;
            let Some(mut segment) = begin
                .checked_add(size.min(data - offset))
                .and_then(|length| frame.sibling(&self.pool, u16::try_from(length).ok()?))
            else {
                return false;
            };
            let Some(octets) = segment.octets_mut() else {
                return false;
            };
            let is_there = octets
                .get_mut(begin..)
                .is_some_and(|data| frame.read_at(begin + offset, data));
            if !is_there || !headers.write(octets, number as u16, offset) {
                return false;
            }
            segment.set_mark(frame.mark());
            sink(segment);
        }
        true
    }

    /// A frame that goes out whole, with the request to cut it where that is needed; an error has it unchanged.
    fn handed_on<'burst>(
        &self,
        tx: &TxQueue,
        frame: Mbuf<'burst>,
    ) -> Result<Mbuf<'burst>, Mbuf<'burst>> {
        let Some(headers) = headers(&frame) else {
            return Err(frame);
        };
        // That the sender has slowed down, the driver cannot tell a guest: the first segment alone says it.
        if headers.has_cwr() || !tx.takes_uncut(headers.is_ipv4()) {
            return Err(frame);
        }
        let Some(sum) = headers.partial_checksum() else {
            return Err(frame);
        };
        let lengths = HeaderLengths {
            ethernet: headers.ethernet_length(),
            network: headers.network_length(),
            transport: headers.transport_length(),
        };
        frame.request_segments(lengths, headers.is_ipv4(), sum)
    }

    /// As the sender asked, and no longer than a frame may be.
    fn data_in_each(&self, headers: &TcpFrame, frame: &Mbuf<'_>) -> Option<usize> {
        let tags = headers.ethernet_length().saturating_sub(14) / VLAN_TAG_LENGTH;
        let room = (self.length_max + tags * VLAN_TAG_LENGTH).checked_sub(headers.headers_length());
        let size = usize::from(frame.segment_size()?).min(room?);
        (size > 0).then_some(size)
    }
}

fn headers(frame: &Mbuf<'_>) -> Option<TcpFrame> {
    let octets = frame.octets();
    let front = octets.get(..SEGMENT_HEADERS_MAX).unwrap_or(octets);
    TcpFrame::read(front, frame.length() as usize)
}

/// A transmit queue to a port that gets what its peer takes.
#[derive(Debug)]
pub(crate) struct CuttingQueue {
    tx: TxQueue,
    cutter: Cutter,
    ready: Burst,
}

impl CuttingQueue {
    pub(crate) fn new(eal: &Eal, tx: TxQueue, cutter: Cutter) -> Self {
        Self {
            tx,
            cutter,
            ready: Burst::new(eal),
        }
    }

    pub(crate) fn into_queue(self) -> TxQueue {
        self.tx
    }

    /// Sends a burst, and drops what is not taken. Returns how many of its frames were sent, whole or in segments; of a burst
    /// with some to be cut, those that the queue had no room for are among them.
    #[inline(never)]
    pub(super) fn transmit(&mut self, burst: &mut Burst, counters: &PortCounters) -> usize {
        let Self { tx, cutter, ready } = self;
        if !burst.has_uncut() {
            return send(tx, burst, counters);
        }
        let mut sent = burst.len();
        for frame in burst.drain() {
            if !cutter.concerns(&frame) {
                put(tx, ready, frame, counters);
                continue;
            }
            let frame = match cutter.handed_on(tx, frame) {
                Ok(frame) => {
                    counters.uncut.add(1);
                    put(tx, ready, frame, counters);
                    continue;
                }
                Err(frame) => frame,
            };
            if cutter.cut(&frame, |segment| put(tx, ready, segment, counters)) {
                counters.segmented.add(1);
            } else {
                counters.dropped(PortDrop::NotSegmented).add(1);
                sent -= 1;
            }
        }
        send(tx, ready, counters);
        sent
    }
}

/// Puts a frame to those that are ready, which are sent when there is no more room.
fn put(tx: &mut TxQueue, ready: &mut Burst, frame: Mbuf<'_>, counters: &PortCounters) {
    if ready.room() == 0 {
        send(tx, ready, counters);
    }
    // There is room.
    drop(ready.push(frame));
}

fn send(tx: &mut TxQueue, burst: &mut Burst, counters: &PortCounters) -> usize {
    let (mut octets, _) = measure(burst);
    let sent = tx.send(burst);
    octets -= burst.take_refused();
    counters.tx_frames.add(sent as u64);
    if !burst.is_empty() {
        octets -= measure(burst).0;
        counters.dropped(PortDrop::TxFull).add(burst.len() as u64);
        burst.free();
    }
    counters.tx_octets.add(octets);
    sent
}
