// SPDX-License-Identifier: Apache-2.0
//! A driver whose device writes arbitrary values to the memory, at any time.

use std::sync::Arc;

use quietwire_memory::Mapping;

use crate::driver::{
    Layout, Packed, PutResult, Queue, QueueLayout, Received, Receiver, Sender, Split,
};
use crate::features::{F_EVENT_IDX, F_RING_PACKED, F_VERSION_1, NET_F_GUEST_CSUM, NET_F_MRG_RXBUF};
use crate::ring::header::{HEADER_LEN, OffloadHeader};

/// Octets of a buffer's data.
const BUFFER: u32 = 64;
/// Frames that a driver received.
#[derive(Clone, Copy, Debug, Default)]
pub struct DriverDepth {
    /// Frames in one buffer or several.
    pub frames: u64,
    /// Frames in several buffers.
    pub merged: u64,
}

/// Runs a receiver and a sender against a device that the octets control: its features, the entries that it uses, and what
/// it writes where. Both must stay within the memory, must not return a buffer twice, and must work again after
/// [`Layout::write`].
#[allow(clippy::missing_panics_doc)]
pub fn fuzz_driver_ring(octets: &[u8]) -> DriverDepth {
    let Some((setup, octets)) = octets.split_first() else {
        return DriverDepth::default();
    };
    let size = 2 << (setup & 3);
    let is_packed = setup & 4 != 0;
    let Ok(layout) = Layout::new(1, size, size, BUFFER, is_packed) else {
        return DriverDepth::default();
    };
    let Ok((mapping, _file)) = Mapping::create("quietwire-fuzz", layout.total()) else {
        return DriverDepth::default();
    };
    let mapping = Arc::new(mapping);
    let mut features = F_VERSION_1;
    for (bit, feature) in [
        (8, NET_F_MRG_RXBUF),
        (16, F_EVENT_IDX),
        (4, F_RING_PACKED),
        (32, NET_F_GUEST_CSUM),
    ] {
        if setup & bit != 0 {
            features |= feature;
        }
    }
    if is_packed {
        let depth = scribble::<Packed>(&mapping, &layout, features, octets);
        check_reset::<Packed>(&mapping, &layout, features);
        depth
    } else {
        let depth = scribble::<Split>(&mapping, &layout, features, octets);
        check_reset::<Split>(&mapping, &layout, features);
        depth
    }
}

/// Octets that are consumed one by one; zeros after the end.
struct Octets<'o>(&'o [u8]);

impl Octets<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn next_u16(&mut self) -> u16 {
        u16::from_le_bytes([self.next(), self.next()])
    }
}

/// The device's side of a queue, complete enough to pass the driver's checks for a while.
struct FakeDevice {
    queue: QueueLayout,
    is_packed: bool,
    used: u16,
}

impl FakeDevice {
    /// Reports the buffer with an identifier as used.
    fn give(&mut self, mapping: &Mapping, id: u16, len: u32) {
        let entry = u64::from(self.used % self.queue.size);
        if self.is_packed {
            let descriptor = self.queue.descriptors + 16 * entry;
            let flags: u16 = if self.used & self.queue.size == 0 {
                0x8080
            } else {
                0
            };
            write(mapping, descriptor + 8, &len.to_le_bytes());
            write(mapping, descriptor + 12, &id.to_le_bytes());
            write(mapping, descriptor + 14, &flags.to_le_bytes());
            self.used = self.used.wrapping_add(1);
        } else {
            let at = self.queue.device_area + 4 + 8 * entry;
            write(mapping, at, &u32::from(id).to_le_bytes());
            write(mapping, at + 4, &len.to_le_bytes());
            self.used = self.used.wrapping_add(1);
            let index = self.queue.device_area + 2;
            write(mapping, index, &self.used.to_le_bytes());
        }
    }
}

fn write(mapping: &Mapping, offset: u64, octets: &[u8]) {
    if let Some(span) = mapping.span(offset, octets.len()) {
        span.copy_from(octets);
    }
}

/// Runs both ends while the device writes to the memory. They are dropped at the end.
#[allow(clippy::missing_panics_doc)]
pub(crate) fn scribble<Q: Queue>(
    mapping: &Arc<Mapping>,
    layout: &Layout,
    features: u64,
    octets: &[u8],
) -> DriverDepth {
    let mut depth = DriverDepth::default();
    let (Ok(mut receiver), Ok(mut sender)) = (
        Receiver::<Q>::new(mapping, layout, 0, features),
        Sender::<Q>::new(mapping, layout, 1, features),
    ) else {
        return depth;
    };
    let mut devices: Vec<FakeDevice> = (0..2)
        .filter_map(|index| {
            layout.queue(index).map(|queue| FakeDevice {
                queue,
                is_packed: layout.is_packed(),
                used: 0,
            })
        })
        .collect();
    let mut octets = Octets(octets);
    while !octets.0.is_empty() {
        let step = octets.next();
        let Some(device) = devices.get_mut(usize::from(step >> 7)) else {
            return depth;
        };
        match step % 8 {
            0 => write_anywhere(mapping, &device.queue, &mut octets),
            1 => {
                let buffer = u64::from(octets.next()) % u64::from(device.queue.size);
                let header = device.queue.buffers + buffer * device.queue.stride;
                write(mapping, header + 10, &[octets.next() % 8, 0]);
            }
            2 | 3 => {
                let (id, len) = (octets.next(), octets.next());
                // Usually the next one in order, with a possible length.
                let id = if id < 200 {
                    device.used % device.queue.size
                } else {
                    u16::from(id) - 200
                };
                device.give(mapping, id, u32::from(len) % 80);
            }
            4 | 5 => receive(&mut receiver, usize::from(octets.next() % 80), &mut depth),
            _ => send(&mut sender, &device.queue, &mut octets),
        }
        assert!(receiver.is_consistent() && sender.is_consistent());
    }
    depth
}

fn write_anywhere(mapping: &Mapping, queue: &QueueLayout, octets: &mut Octets<'_>) {
    let kind = octets.next();
    let at = u64::from(octets.next_u16());
    let value: [u8; 8] = std::array::from_fn(|_| octets.next());
    let offset = match kind % 4 {
        0 => queue.descriptors + at % (16 * u64::from(queue.size)),
        1 => queue.driver_area + at % (8 + 2 * u64::from(queue.size)),
        2 => queue.device_area + at % (8 + 8 * u64::from(queue.size)),
        _ => at % mapping.len() as u64,
    };
    let len = 1 + usize::from(kind / 4) % value.len();
    write(mapping, offset, value.get(..len).unwrap_or_default());
}

fn receive<Q: Queue>(receiver: &mut Receiver<Q>, most: usize, depth: &mut DriverDepth) {
    let ready = receiver.ready(most);
    assert!(ready <= most);
    if most % 4 == 3 {
        let taken = receiver.take_while(ready, |span, _| {
            assert!(!span.is_empty());
            span.copy_to(&mut [0; 256]) == span.len()
        });
        assert!(taken <= ready);
        depth.frames += taken as u64;
        receiver.release();
        return;
    }
    for number in 0..ready {
        if number % 2 == 0
            && let Some((span, _)) = receiver.next_contiguous()
        {
            assert!(!span.is_empty());
            assert_eq!(span.copy_to(&mut [0; 256]), span.len());
            depth.frames += 1;
            continue;
        }
        match receiver.next() {
            Some(Received::Frame(frame)) => {
                let mut length = frame.first.len();
                let first = length;
                assert!(length > 0);
                let mut copy = [0; 256];
                assert_eq!(frame.first.copy_to(&mut copy), length);
                for span in frame.rest {
                    assert_eq!(span.copy_to(&mut copy), span.len());
                    length += span.len();
                }
                assert_eq!(length, frame.length as usize);
                depth.frames += 1;
                depth.merged += u64::from(length > first);
            }
            Some(Received::Bad) => {}
            None => break,
        }
    }
    receiver.release();
}

fn send<Q: Queue>(sender: &mut Sender<Q>, queue: &QueueLayout, octets: &mut Octets<'_>) {
    let data = [7; 1024];
    let ready = sender.ready(usize::from(octets.next() % 8));
    for _ in 0..ready {
        let length = usize::from(octets.next()) * 4;
        let header = OffloadHeader {
            flags: octets.next() & 1,
            ..OffloadHeader::default()
        };
        let segment = data.get(..length).unwrap_or_default();
        let how = octets.next();
        if how & 2 != 0 {
            let most = usize::from(how >> 6);
            let mut left = usize::from(how >> 3 & 3);
            let filled = sender.fill_each(most, length, |buffer| {
                assert_eq!(buffer.octets.len(), queue.buffer_size as usize);
                buffer.octets.copy_from(segment);
                left = left.saturating_sub(1);
                left > 0
            });
            assert!(filled <= most);
            continue;
        }
        if how & 1 != 0
            && let Ok(buffer) = sender.buffer(length)
        {
            assert_eq!(buffer.octets.len(), queue.buffer_size as usize);
            buffer.octets.copy_from(segment);
            sender.fill(length);
            continue;
        }
        let put = sender.put(&header, std::iter::once(segment), length);
        if put == PutResult::Bad {
            let buffer = queue.buffer_size as usize + HEADER_LEN;
            assert!(length == 0 || length > buffer * usize::from(queue.size) - HEADER_LEN);
        }
    }
    match octets.next() {
        0..64 => {}
        64..96 => drop(sender.settle()),
        _ => drop(sender.publish()),
    }
}

/// Writes the rings again; both ends must work with a device that follows the rules.
fn check_reset<Q: Queue>(mapping: &Arc<Mapping>, layout: &Layout, features: u64) {
    assert!(layout.write(mapping));
    let (Ok(mut receiver), Ok(mut sender)) = (
        Receiver::<Q>::new(mapping, layout, 0, features),
        Sender::<Q>::new(mapping, layout, 1, features),
    ) else {
        return;
    };
    let Some((from, to)) = layout.queue(0).zip(layout.queue(1)) else {
        return;
    };
    let fake_device = |queue| FakeDevice {
        queue,
        is_packed: layout.is_packed(),
        used: 0,
    };
    let (mut from, mut to) = (fake_device(from), fake_device(to));
    for turn in 0..4 * to.queue.size {
        let slot = turn % to.queue.size;
        let header = from.queue.buffers + u64::from(slot) * from.queue.stride;
        write(mapping, header, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0xab]);
        from.give(mapping, slot, 13);
        assert_eq!(receiver.ready(64), 1);
        let Some(Received::Frame(frame)) = receiver.next() else {
            unreachable!("a frame was received");
        };
        assert_eq!(frame.first.read_array(), Some([0xab]));
        receiver.release();
        assert_eq!(sender.ready(1), 1);
        let header = OffloadHeader::default();
        let put = sender.put(&header, std::iter::once(&[1, 2, 3][..]), 3);
        assert_eq!(put, PutResult::Sent);
        sender.publish();
        to.give(mapping, slot, 0);
        assert!(receiver.is_consistent() && sender.is_consistent());
    }
    assert_eq!((receiver.errors(), sender.errors()), (0, 0));
}
