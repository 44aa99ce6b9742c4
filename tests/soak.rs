// SPDX-License-Identifier: Apache-2.0
//! A switch that changes at random while two of its ports carry checked traffic: ports come and go, their peers are killed, a routing
//! daemon's routes flap. No frame of the traffic is lost, and once the changes are undone, the configuration and the descriptors are those
//! of the start and the memory has not grown. Requires root, as the switch does, and BIRD.
//!
//! `QUIETWIRE_SOAK_SECONDS` is the duration (default: 7), `QUIETWIRE_SEED` repeats the random choices of a run, and
//! `QUIETWIRE_SOAK_DIRECTORY` is where samples and plot are written (default: nowhere). `make soak` runs it for an hour.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "peers/bird.rs"]
mod bird;
#[path = "soak/changes.rs"]
mod changes;
#[path = "soak/network.rs"]
mod network;
#[path = "soak/peers.rs"]
mod peers;
#[path = "soak/plot.rs"]
mod plot;
#[path = "hostile_peers/process.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod process;
#[path = "switch_ports/rig.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod rig;
#[path = "hostile_peers/rng.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod rng;
#[path = "soak/samples.rs"]
mod samples;
#[path = "soak/traffic.rs"]
mod traffic;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::changes::Changer;
use crate::network::Network;
use crate::rig::until;
use crate::rng::{Rng, from_environment};
use crate::samples::{AtRest, Samples, Waits};
use crate::traffic::Traffic;

/// Time between two moments at rest, when all changes are undone.
const REST_INTERVAL: Duration = Duration::from_secs(600);
/// Memory may grow until then: tables and caches that fill once.
const GROWTH_ENDS: Duration = Duration::from_secs(600);
/// Highest growth of the resident memory after that, KiB per hour.
const GROWTH_MAX_KIB: f64 = 1024.0;
/// Lowest number of changes per hour in a run of [`GROWTH_ENDS`] or longer.
const CHANGES_MIN: f64 = 10_000.0;
/// Longest time that a short run goes on until it has killed a peer: on a slow machine, two ports with sockets exist late.
const KILL_WAIT: Duration = Duration::from_secs(60);

/// Threads that stop at rest: changes, peers, routes.
const THREADS: usize = 3;
/// Pause between two reads of what threads share.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// State that the threads of a run share.
#[derive(Default)]
pub(crate) struct Shared {
    /// Changes, peers and routes stop for the moment.
    rests: AtomicBool,
    /// Threads that have stopped.
    resting: AtomicUsize,
    /// The run ends.
    ends: AtomicBool,
    /// Changes that the switch made.
    changes: AtomicU64,
    /// Changes that the switch refused.
    refused: AtomicU64,
    /// Peers that were killed.
    killed: AtomicU64,
}

impl Shared {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Returns true if the threads have to stop.
    fn stops(&self) -> bool {
        self.ends() || self.rests.load(Ordering::Relaxed)
    }

    /// Waits, as a thread that has stopped, until the run goes on or ends.
    fn pause(&self) {
        self.resting.fetch_add(1, Ordering::AcqRel);
        while self.stops() && !self.ends() {
            std::thread::sleep(PAUSE);
        }
        self.resting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits until so many threads have stopped. Returns false if the run ends.
    fn wait_for(&self, resting: usize) -> bool {
        let is_so = || self.resting.load(Ordering::Acquire) == resting;
        until("all threads stop or go on", || {
            (is_so() || self.ends()).then_some(())
        });
        is_so()
    }

    /// Stops the threads while `look` looks. Returns `None` if the run ends.
    fn rest<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        self.rests.store(true, Ordering::Release);
        let observed = self.wait_for(THREADS).then(look);
        self.rests.store(false, Ordering::Release);
        self.wait_for(0);
        observed
    }
}

/// Ends the run when this value is dropped, also by a failed assertion: the other threads must not wait for ever.
struct EndsRun<'a>(&'a Shared);

impl Drop for EndsRun<'_> {
    fn drop(&mut self) {
        self.0.ends.store(true, Ordering::Relaxed);
    }
}

#[test]
fn traffic_passes_and_nothing_grows_while_the_switch_changes_at_random() {
    let seconds = from_environment("QUIETWIRE_SOAK_SECONDS").unwrap_or(7);
    let duration = Duration::from_secs(seconds);
    let directory = TempDir::new().unwrap();
    let mut rng = Rng::new();
    let mut network = Network::new(directory.path());
    let switch = network.start_switch();
    let mut traffic = Traffic::open(directory.path(), duration);
    let shared = Shared::default();
    let mut changer = Changer::new(&switch, directory.path(), rng.next());
    let seed_of_peers = rng.next();
    let mut samples = Samples::default();
    network.wait_for_routes(&switch);
    let configuration = network::configuration(&switch);
    samples.rests.push(AtRest::take(
        &network,
        &switch,
        &configuration,
        None,
        Duration::ZERO,
    ));
    let descriptors = samples.rests.first().map(|rest| rest.descriptors);
    let network = &network;
    let began = Instant::now();
    std::thread::scope(|scope| {
        let ends = EndsRun(&shared);
        let changing = scope.spawn(|| {
            let _ends = EndsRun(&shared);
            changer.run(&shared);
        });
        let connecting = scope.spawn(|| {
            let _ends = EndsRun(&shared);
            peers::run(&shared, directory.path(), seed_of_peers);
        });
        let flapping = scope.spawn(|| {
            let _ends = EndsRun(&shared);
            network.flap(&shared);
        });
        let interval = REST_INTERVAL.min(duration / 3);
        let mut next_rest = interval;
        let is_over = || {
            let past = began.elapsed().checked_sub(duration);
            let has_killed = shared.killed.load(Ordering::Relaxed) > 0;
            past.is_some_and(|past| has_killed || past >= KILL_WAIT)
        };
        while !is_over() && !shared.ends() {
            let waits = Waits::of(switch.pid());
            let trial = traffic.run();
            let changes = shared.changes.load(Ordering::Relaxed);
            samples.add(began.elapsed(), (switch.pid(), &waits), &trial, changes);
            if began.elapsed() >= next_rest {
                next_rest += interval;
                let at = began.elapsed();
                let look = || AtRest::take(network, &switch, &configuration, descriptors, at);
                samples.rests.extend(shared.rest(look));
            }
        }
        drop(ends);
        for thread in [changing, connecting, flapping] {
            thread.join().unwrap();
        }
    });
    let look = AtRest::take(
        network,
        &switch,
        &configuration,
        descriptors,
        began.elapsed(),
    );
    samples.rests.push(look);
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    println!(
        "{} changes made, {} refused, {} peers killed; {}",
        count(&shared.changes),
        count(&shared.refused),
        count(&shared.killed),
        samples.summary()
    );
    if let Some(place) = std::env::var_os("QUIETWIRE_SOAK_DIRECTORY") {
        samples.write(&PathBuf::from(place), &plot::draw);
    }
    assert!(count(&shared.changes) > 0, "no change was made");
    assert!(count(&shared.killed) > 0, "no peer was killed");
    samples.check(duration, count(&shared.changes));
    assert_eq!(switch.end(), Some(0));
}
