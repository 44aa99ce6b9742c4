// SPDX-License-Identifier: Apache-2.0
//! A bounded ring that passes frames from one thread to another: one writer, one reader, no locks, and no allocation after its
//! creation.

use std::sync::Arc;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::BURST_MAX;
use crate::bell::Bell;
use crate::burst::Burst;
use crate::eal::Eal;
use crate::sys;

/// A frame in the ring, which owns it until it is received.
#[derive(Debug)]
struct Owned(*mut sys::rte_mbuf);

// SAFETY: a buffer may be used and freed by another thread than took it.
unsafe impl Send for Owned {}

/// The writing end.
#[derive(Debug)]
pub struct FrameSender {
    frames: Producer<Owned>,
    /// Rung when there are frames.
    bell: Option<Arc<Bell>>,
}

/// The reading end. Its drop returns frames left in the ring to their pools.
#[derive(Debug)]
pub struct FrameReceiver {
    frames: Consumer<Owned>,
    bell: Option<Arc<Bell>>,
    // Buffers live in the EAL's memory.
    _eal: Eal,
}

/// Creates a ring for `capacity` frames.
#[must_use]
pub fn channel(eal: &Eal, capacity: usize) -> (FrameSender, FrameReceiver) {
    channel_with_bell(eal, capacity, None)
}

/// Creates a ring for `capacity` frames to a thread with this bell.
#[must_use]
pub fn channel_with_bell(
    eal: &Eal,
    capacity: usize,
    bell: Option<Arc<Bell>>,
) -> (FrameSender, FrameReceiver) {
    let (writer, reader) = RingBuffer::new(capacity);
    let receiver = FrameReceiver {
        frames: reader,
        bell: bell.clone(),
        _eal: eal.clone(),
    };
    let sender = FrameSender {
        frames: writer,
        bell,
    };
    (sender, receiver)
}

impl FrameSender {
    /// Sends the frames of a burst, oldest first. Returns the number of frames sent; others stay in the burst if the ring is full.
    #[inline]
    pub fn send(&mut self, burst: &mut Burst) -> usize {
        if self.frames.is_abandoned() {
            return 0;
        }
        let count = burst.len().min(self.frames.slots());
        let Ok(chunk) = self.frames.write_chunk_uninit(count) else {
            return 0;
        };
        let sent = chunk.fill_from_iter(burst.drain_front(count).map(Owned));
        if let Some(bell) = &self.bell {
            bell.ring();
        }
        sent
    }

    /// Returns true if at least half of the ring is in use.
    #[must_use]
    pub fn is_half_full(&self) -> bool {
        self.frames.slots() <= self.frames.buffer().capacity() / 2
    }
}

impl FrameReceiver {
    /// Returns true if frames in the ring ring this bell.
    #[must_use]
    pub fn rings(&self, bell: &Arc<Bell>) -> bool {
        self.bell.as_ref().is_some_and(|own| Arc::ptr_eq(own, bell))
    }

    /// Returns the number of frames in the ring.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.slots()
    }

    /// Returns true if the ring is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the writing end is dropped, so that no frames will follow those in the ring.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.frames.is_abandoned()
    }

    /// Receives at most `most` frames into an empty burst. Returns their number. Does nothing if the burst is not empty.
    #[inline]
    pub fn receive(&mut self, burst: &mut Burst, most: usize) -> usize {
        if !burst.is_empty() {
            return burst.len();
        }
        let count = self.frames.slots().min(most).min(BURST_MAX);
        if count == 0 {
            return 0;
        }
        let Ok(chunk) = self.frames.read_chunk(count) else {
            return 0;
        };
        burst.append_raw(chunk.into_iter().map(|frame| frame.0))
    }
}

impl Drop for FrameReceiver {
    fn drop(&mut self) {
        while let Ok(mut frame) = self.frames.pop() {
            // SAFETY: the ring owned the buffer, which now has no other owner.
            unsafe { sys::rte_pktmbuf_free_bulk(&raw mut frame.0, 1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mempool;

    #[test]
    fn frames_come_out_in_order_and_none_is_lost() {
        let eal = crate::testing::eal();
        let pool = Mempool::new(&eal, "ring", 1023, 256).unwrap();
        let (mut sender, mut receiver) = channel(&eal, 100);
        let mut burst = Burst::new(&eal);
        let mut number = 0u8;
        let mut sent = 0;
        for is_half_full in [false, false, true] {
            assert_eq!(sender.is_half_full(), is_half_full);
            assert!(burst.allocate(&pool, 40));
            burst.write_each(|frame| {
                frame.octets(60).unwrap()[0] = number;
                number += 1;
            });
            sent += sender.send(&mut burst);
        }
        assert_eq!((sent, burst.len()), (100, 20));
        burst.free();
        let mut observed = Vec::new();
        for _ in 0..2 {
            receiver.receive(&mut burst, 30);
            observed.extend(burst.frames().map(|frame| frame[0]));
            // A burst that is not empty stays unchanged.
            assert_eq!(receiver.receive(&mut burst, 30), 30);
            burst.free();
        }
        assert_eq!(observed, (0..60).collect::<Vec<u8>>());
        // Tags are inserted into and removed from frames that are not shared.
        assert_eq!(receiver.receive(&mut burst, 1), 1);
        let mut frame = burst.drain().next().unwrap();
        let before = frame.octets().to_vec();
        assert!(frame.push_tag(0x8100, 0x2007) && frame.push_tag(0x88a8, 5));
        assert_eq!(frame.length(), 68);
        assert_eq!(frame.octets()[..12], before[..12]);
        assert_eq!(frame.octets()[12..20], [0x88, 0xa8, 0, 5, 0x81, 0, 0x20, 7]);
        assert_eq!(frame.octets()[20..], before[12..]);
        // Frames get longer and shorter at the front, and shorter at the end.
        let tagged = frame.octets().to_vec();
        assert!(frame.grow_front(48) && frame.length() == 116);
        assert_eq!(frame.octets()[48..], tagged);
        assert!(!frame.grow_front(u16::MAX) && !frame.shrink_front(117) && !frame.truncate(117));
        assert!(frame.shrink_front(50) && frame.truncate(60));
        assert_eq!(frame.octets(), &tagged[2..62]);
        assert!(frame.grow_front(2) && !frame.truncate(68));
        frame.octets_mut().unwrap()[..2].copy_from_slice(&tagged[..2]);
        assert_eq!(frame.octets(), &tagged[..62]);
        let shared = frame.share();
        assert!(!frame.grow_front(1) && !frame.shrink_front(1) && !frame.truncate(1));
        assert!(!frame.pop_tag() && !frame.push_tag(1, 1) && !frame.replace_tag(1, 1));
        let mut copy = shared.copy(&pool).unwrap();
        assert_eq!(copy.octets(), frame.octets());
        assert!(copy.replace_tag(0x8100, 9) && copy.pop_tag() && copy.pop_tag());
        assert_eq!(copy.octets(), &before[..54]);
        drop((frame, shared, copy));
        drop(receiver);
        assert_eq!(pool.available(), 1023);
        assert!(burst.allocate(&pool, 5));
        assert_eq!(sender.send(&mut burst), 0, "the reading end is dropped");
    }

    #[test]
    fn copies_have_the_class_of_their_frame_and_new_frames_have_none() {
        let eal = crate::testing::eal();
        let pool = Mempool::new(&eal, "classes", 1023, 256).unwrap();
        let (mut burst, mut made) = (Burst::new(&eal), Burst::new(&eal));
        let new = || crate::Mbuf::new(&eal, &pool, &[0; 60]).unwrap();
        let mut first = new();
        first.set_mark(7);
        assert!(burst.push(first).is_ok());
        assert!(burst.classes().eq([0]));
        burst.set_classes([0x8765_4321]);
        assert!(burst.classes().eq([0x8765_4321]) && burst.marks().eq([7]));
        for frame in burst.drain() {
            for one in [frame.copy(&pool), frame.sibling(&pool, 60)] {
                assert!(made.push(one.unwrap()).is_ok());
            }
            assert!(made.push(frame).is_ok());
        }
        assert!(made.push(new()).is_ok());
        assert!(
            made.classes()
                .eq([0x8765_4321, 0x8765_4321, 0x8765_4321, 0])
        );
        made.free();
        assert_eq!(pool.available(), 1023);
    }
}
