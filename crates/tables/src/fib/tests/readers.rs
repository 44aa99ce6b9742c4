// SPDX-License-Identifier: Apache-2.0
//! Readers concurrent to the writer: a look-up returns the result before or after a change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

const READERS: usize = 2;
const ROUNDS: u64 = 400;

/// Epoch of each reader: the one it saw last before a burst.
struct Epochs {
    now: AtomicU64,
    observed: [AtomicU64; READERS],
    stop: AtomicBool,
}

impl Epochs {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            now: AtomicU64::new(1),
            observed: Default::default(),
            stop: AtomicBool::new(false),
        })
    }

    /// Returns the epoch that all readers have reached: memory freed before it can be reused.
    fn over(&self) -> u64 {
        let observed = self
            .observed
            .iter()
            .map(|observed| observed.load(Ordering::SeqCst));
        observed.min().unwrap_or(0)
    }
}

/// Reads until the stop flag is set. Every result for `destinations` must be an allowed one.
fn read(epochs: &Epochs, reader: usize, look_up: impl Fn(usize) -> u32, allowed: &[&[u32]]) {
    while !epochs.stop.load(Ordering::SeqCst) {
        let now = epochs.now.load(Ordering::SeqCst);
        epochs.observed[reader].store(now, Ordering::SeqCst);
        for (destination, allowed) in allowed.iter().enumerate() {
            let found = look_up(destination);
            assert!(allowed.contains(&found), "{destination}: {found}");
        }
    }
}

#[test]
fn ipv4_readers_see_before_or_after() {
    let mut routes = Ipv4Routes::new(4).unwrap();
    routes.insert(v4("10.0.0.0/8"), 1).unwrap();
    let fib = routes.fib();
    let destinations = [0x0a01_0101u32, 0x0a01_0181, 0x0a01_0201];
    let allowed: [&[u32]; 3] = [&[1, 2, 3], &[1, 2, 4], &[1, 2]];
    let epochs = Epochs::new();
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (fib, epochs) = (&fib, &epochs);
            scope.spawn(move || {
                read(
                    epochs,
                    reader,
                    |at| {
                        let mut found = [0; 3];
                        fib.look_up_burst(&destinations, &mut found);
                        found[at]
                    },
                    &allowed,
                );
            });
        }
        for round in 0..ROUNDS {
            let epoch = epochs.now.fetch_add(1, Ordering::SeqCst) + 1;
            routes.set_epoch(epoch);
            routes.reclaim(epochs.over());
            let prefix = [v4("10.1.1.1/32"), v4("10.1.1.128/25"), v4("10.1.0.0/16")];
            let hop = [3, 4, 2];
            let at = (round % 3) as usize;
            if routes.remove(prefix[at]).is_none() {
                // The writer may have to wait for readers before memory is reused.
                drop(routes.insert(prefix[at], hop[at]));
            }
        }
        epochs.stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn ipv6_readers_see_before_or_after() {
    let mut routes = Ipv6Routes::new(256).unwrap();
    routes.insert(v6("2001:db8::/32"), 1).unwrap();
    let fib = routes.fib();
    let destinations = ["2001:db8:1::1", "2001:db8:1:1::1", "2001:db8:2::1"]
        .map(|text| text.parse::<Ipv6Addr>().unwrap().to_bits());
    let allowed: [&[u32]; 3] = [&[1, 2, 3], &[1, 2, 3, 4], &[1, 2]];
    let epochs = Epochs::new();
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (fib, epochs) = (&fib, &epochs);
            scope.spawn(move || {
                read(
                    epochs,
                    reader,
                    |at| {
                        let mut found = [0; 3];
                        fib.look_up_burst(&destinations, &mut found);
                        found[at]
                    },
                    &allowed,
                );
            });
        }
        for round in 0..ROUNDS {
            let epoch = epochs.now.fetch_add(1, Ordering::SeqCst) + 1;
            routes.set_epoch(epoch);
            routes.reclaim(epochs.over());
            let prefix = [
                v6("2001:db8:1::/48"),
                v6("2001:db8:1:1::/64"),
                v6("2001:db8::/33"),
            ];
            let hop = [3, 4, 2];
            let at = (round % 3) as usize;
            if routes.get(prefix[at]).is_some() {
                drop(routes.remove(prefix[at]));
            } else {
                drop(routes.insert(prefix[at], hop[at]));
            }
        }
        epochs.stop.store(true, Ordering::SeqCst);
    });
}
