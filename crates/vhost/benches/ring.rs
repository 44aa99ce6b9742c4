// SPDX-License-Identifier: Apache-2.0
//! Cost of sending and of receiving a frame, with driver and device of a ring in one thread and bursts of 32 frames.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)] // A benchmark that fails may panic.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use quietwire_memory::Mapping;
use quietwire_vhost::address_space::{AddressSpace, Region};
use quietwire_vhost::driver::{self, Layout, Packed, Queue, Split};
use quietwire_vhost::features::{F_RING_PACKED, F_VERSION_1, NET_F_MRG_RXBUF};
use quietwire_vhost::ring::{self, OffloadHeader, Receive, Ring, RingConfig, Transmit};

const BURST: usize = 32;
const BUFFER: u32 = 2048;
const SIZE: u16 = 1024;

type Frames = [[u8; BUFFER as usize]; BURST];

/// Both sides of a receive and a transmit queue.
struct Both<Q> {
    receiver: driver::Receiver<Q>,
    sender: driver::Sender<Q>,
    device_receiver: ring::Receiver,
    device_sender: ring::Sender,
}

fn both<Q: Queue>() -> Both<Q> {
    let packed = if Q::PACKED { F_RING_PACKED } else { 0 };
    let features = F_VERSION_1 | NET_F_MRG_RXBUF | packed;
    let layout = Layout::new(1, SIZE, SIZE, BUFFER, Q::PACKED).unwrap();
    let (mapping, _) = Mapping::create("vhost-bench", layout.total()).unwrap();
    let mapping = Arc::new(mapping);
    let receiver = driver::Receiver::new(&mapping, &layout, 0, features).unwrap();
    let sender = driver::Sender::new(&mapping, &layout, 1, features).unwrap();
    let start = Layout::address(0);
    let region = Region::new(start, start, mapping.len() as u64, &mapping, 0).unwrap();
    let space = AddressSpace::new(vec![region], None).unwrap();
    let config = |index| {
        let queue = layout.queue(index).unwrap();
        RingConfig {
            size: SIZE,
            descriptors: start + queue.descriptors,
            driver: start + queue.driver_area,
            device: start + queue.device_area,
            space: &space,
            base: if Q::PACKED { 0x8000_8000 } else { 0 },
            features,
            log: None,
            ring_log_address: None,
            inflight: None,
        }
    };
    let mut both = Both {
        receiver,
        sender,
        device_receiver: ring::Receiver::new(&config(1)).unwrap(),
        device_sender: ring::Sender::new(&config(0)).unwrap(),
    };
    both.device_receiver.request_notifications(false);
    both.device_sender.request_notifications(false);
    both
}

#[inline(never)]
fn driver_sends<Q: Queue>(sender: &mut driver::Sender<Q>, frames: &Frames, length: usize) {
    assert_eq!(sender.ready(BURST), BURST);
    let header = OffloadHeader::default();
    for frame in frames {
        let put = sender.put(&header, std::iter::once(&frame[..length]), length);
        assert_eq!(put, driver::PutResult::Sent);
    }
    black_box(sender.publish());
}

#[inline(never)]
fn device_receives(receiver: &mut impl Receive, frames: &mut Frames) {
    assert_eq!(receiver.ready(BURST), BURST);
    let mut places = frames.iter_mut();
    let count = receiver.take_contiguous(BURST, usize::MAX, |frame, _| {
        if let Some(to) = places.next() {
            frame.copy_to(to);
        }
    });
    assert_eq!(count, BURST);
    receiver.release();
}

#[inline(never)]
fn device_sends(sender: &mut impl Transmit, frames: &Frames, length: usize) {
    assert_eq!(sender.ready(BURST), BURST);
    let (count, _) =
        sender.put_contiguous(|first| frames[first..].iter().map(|frame| &frame[..length]));
    assert_eq!(count, BURST);
    black_box(sender.publish());
}

#[inline(never)]
fn driver_receives<Q: Queue>(receiver: &mut driver::Receiver<Q>, frames: &mut Frames) {
    assert_eq!(receiver.ready(BURST), BURST);
    for to in frames {
        let Some((frame, _)) = receiver.next_contiguous() else {
            panic!("a frame is missing");
        };
        frame.copy_to(to);
    }
    receiver.release();
}

/// Runs bursts until `wanted` frames have passed; returns the elapsed time.
fn time(wanted: u64, mut burst: impl FnMut()) -> Duration {
    let bursts = wanted.div_ceil(BURST as u64);
    let start = Instant::now();
    for _ in 0..bursts {
        burst();
    }
    start
        .elapsed()
        .mul_f64(wanted as f64 / (bursts * BURST as u64) as f64)
}

fn rings_of<Q: Queue>(criterion: &mut Criterion, kind: &str) {
    let mut group = criterion.benchmark_group(format!("vhost ring, {kind}"));
    group.warm_up_time(Duration::from_millis(500));
    group.measurement_time(Duration::from_secs(2));
    // Times are per frame.
    for length in [64, 1500] {
        let frames: Frames = [[1; BUFFER as usize]; BURST];
        let mut taken: Frames = frames;
        let mut both = both::<Q>();
        group.bench_function(BenchmarkId::new("driver to device", length), |bencher| {
            bencher.iter_custom(|wanted| {
                time(wanted, || {
                    driver_sends(&mut both.sender, black_box(&frames), length);
                    match &mut both.device_receiver {
                        ring::Receiver::Split(ring) => {
                            device_receives(&mut **ring, black_box(&mut taken));
                        }
                        ring::Receiver::Packed(ring) => {
                            device_receives(&mut **ring, black_box(&mut taken));
                        }
                    }
                })
            });
        });
        group.bench_function(BenchmarkId::new("device to driver", length), |bencher| {
            bencher.iter_custom(|wanted| {
                time(wanted, || {
                    match &mut both.device_sender {
                        ring::Sender::Split(ring) => {
                            device_sends(&mut **ring, black_box(&frames), length);
                        }
                        ring::Sender::Packed(ring) => {
                            device_sends(&mut **ring, black_box(&frames), length);
                        }
                    }
                    driver_receives(&mut both.receiver, black_box(&mut taken));
                })
            });
        });
    }
    group.finish();
}

fn rings(criterion: &mut Criterion) {
    rings_of::<Split>(criterion, "split");
    rings_of::<Packed>(criterion, "packed");
}

criterion_group!(benches, rings);
criterion_main!(benches);
