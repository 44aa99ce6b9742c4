// SPDX-License-Identifier: Apache-2.0
//! Cost of sending and of receiving a frame, with both ends of a ring in one thread and bursts of 32 frames.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)] // A benchmark that fails may panic.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use quietwire_memif::message::Direction;
use quietwire_memif::ring::{Layout, PutResult, Receiver, RingSizes, Sender};
use quietwire_memory::Mapping;

const BURST: usize = 32;
const BUFFER: u32 = 2048;
const LOG2_SIZE: u8 = 10;
/// Size of a private buffer: an odd number of cache lines, so that the buffers do not compete for a few sets of the cache.
const FRAME: usize = 2112;
type Frame = [u8; FRAME];

fn ends(direction: Direction) -> (Sender, Receiver) {
    let layout = Layout::new(1, 1, RingSizes::both(LOG2_SIZE), BUFFER).unwrap();
    let (mapping, _) = Mapping::create("memif-bench", layout.region_size()).unwrap();
    let mapping = Arc::new(mapping);
    layout.write(&mapping).unwrap();
    let place = layout.place(direction, 0).unwrap();
    let regions = [Arc::clone(&mapping)];
    match direction {
        Direction::ClientToServer => (
            Sender::client(&mapping, &layout, 0).unwrap(),
            Receiver::server(&regions, &place).unwrap(),
        ),
        Direction::ServerToClient => (
            Sender::server(&regions, &place).unwrap(),
            Receiver::client(&mapping, &layout, 0).unwrap(),
        ),
    }
}

#[inline(never)]
fn send(sender: &mut Sender, frames: &[Frame; BURST], length: usize) {
    assert_eq!(sender.space(BURST), BURST);
    for frame in frames {
        let put = sender.put(std::iter::once(&frame[..length]));
        assert!(matches!(put, PutResult::Sent));
    }
    black_box(sender.publish());
}

#[inline(never)]
fn receive(receiver: &mut Receiver, frames: &mut [Frame; BURST]) {
    assert_eq!(receiver.ready(BURST), BURST);
    let mut frames = frames.iter_mut();
    let taken = receiver.take_contiguous(BURST, |frame| {
        if let Some(to) = frames.next() {
            frame.copy_to(to);
        }
    });
    assert_eq!(taken, BURST);
    receiver.release();
}

fn rings(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memif ring");
    group.warm_up_time(Duration::from_millis(500));
    group.measurement_time(Duration::from_secs(2));
    // Times are per frame.
    for direction in [Direction::ClientToServer, Direction::ServerToClient] {
        for length in [64, 1500] {
            let id = BenchmarkId::new(format!("{direction:?}"), length);
            group.bench_function(id, |bencher| {
                let (mut sender, mut receiver) = ends(direction);
                let frames = [[1_u8; FRAME]; BURST];
                let mut taken = [[0_u8; FRAME]; BURST];
                bencher.iter_custom(|frames_wanted| {
                    let bursts = frames_wanted.div_ceil(BURST as u64);
                    let start = Instant::now();
                    for _ in 0..bursts {
                        send(&mut sender, black_box(&frames), length);
                        receive(&mut receiver, black_box(&mut taken));
                    }
                    start
                        .elapsed()
                        .mul_f64(frames_wanted as f64 / (bursts * BURST as u64) as f64)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, rings);
criterion_main!(benches);
