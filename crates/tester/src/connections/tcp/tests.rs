// SPDX-License-Identifier: Apache-2.0
//! Connections over a simulated path that loses, duplicates and reorders segments, from a seed.

mod details;
mod path;

use proptest::prelude::*;
use quietwire_base::random::Random;

use super::*;
use path::{Faults, Path, World};

/// Loss, duplication and reordering of 1 % each.
const ONE_PERCENT: Faults = Faults {
    lost: 100,
    duplicated: 100,
    delayed: 100,
};

fn settings(random: &mut Random) -> Settings {
    Settings {
        segment_max: [88, 536, 1460, 8960][random.index(4)],
        window: [2_000, 60_000, 262_144, 16_000_000][random.index(4)],
        ..path::settings()
    }
}

/// Runs a transfer in both directions with settings and faults drawn from a seed.
fn transfer(seed: u64) {
    let mut random = Random::new(seed);
    let octets = [1, 1000, 20_000, 200_000].map(|most| random.below(most) as u32);
    let mut world = World::new(
        [settings(&mut random), settings(&mut random)],
        Path::new(
            seed,
            Faults {
                lost: random.below(1000),
                duplicated: random.below(1000),
                delayed: random.below(2000),
            },
        ),
        // Now and then a pool without space, so that connections lack it.
        random.one_of(64, &[64, 1, 0]),
    );
    let pair = [random.index(4), random.index(4)];
    world.transfer([octets[pair[0]], octets[pair[1]]]);
    for end in &world.ends {
        assert_eq!(
            end.tcp.state(),
            State::Closed(Ending::Complete),
            "seed {seed}: {end:?}"
        );
    }
}

#[test]
fn thousands_of_paths_carry_every_octet_unchanged_and_both_ends_close() {
    for seed in 0..2_000 {
        transfer(seed);
    }
}

proptest! {
    #[test]
    fn any_path_carries_every_octet(seed in any::<u64>()) {
        transfer(seed);
    }
}

/// Transfers of 100 MB in each direction, through a path that loses, duplicates and reorders 1 %.
#[test]
fn a_hundred_megabytes_arrive_through_a_path_that_loses_and_reorders() {
    for octets in [[100_000_000, 16], [16, 100_000_000]] {
        let mut world = World::new([path::settings(); 2], Path::new(7, ONE_PERCENT), 4);
        world.transfer(octets);
        for end in &world.ends {
            assert_eq!(end.tcp.state(), State::Closed(Ending::Complete), "{end:?}");
        }
        let sent = octets.iter().sum::<u32>() / 1460;
        let counters = world.ends.each_ref().map(|end| end.counters);
        let again = counters.iter().map(|it| it.retransmitted).sum::<u64>();
        // About the segments that were lost, and not whole windows.
        assert!(
            (u64::from(sent) / 200..u64::from(sent) / 20).contains(&again),
            "{counters:?}"
        );
        // Fast retransmission repairs nearly all of them.
        let timeouts = counters.iter().map(|it| it.timeouts).sum::<u64>();
        assert!(timeouts * 10 < again, "{counters:?}");
    }
}

#[test]
fn a_path_without_faults_needs_no_retransmission() {
    let mut world = World::new([path::settings(); 2], Path::new(1, Faults::default()), 0);
    world.transfer([3_000_000, 5]);
    for end in &world.ends {
        assert_eq!(end.counters, Counters::default(), "{end:?}");
    }
}

#[test]
fn without_sack_losses_are_repaired_as_well() {
    let mut world = World::new([path::settings(); 2], Path::new(3, ONE_PERCENT), 4);
    world.strips_sack = true;
    world.transfer([3_000_000, 3_000_000]);
    for end in &world.ends {
        assert_eq!(end.tcp.state(), State::Closed(Ending::Complete), "{end:?}");
        assert!(end.counters.retransmitted > 0);
    }
}

#[test]
fn a_path_that_loses_everything_ends_both() {
    let all = Faults {
        lost: 10_000,
        ..Faults::default()
    };
    let mut world = World::new([path::settings(); 2], Path::new(1, all), 4);
    world.run([100, 100]);
    assert_eq!(
        world.ends[0].tcp.state(),
        State::Closed(Ending::NotEstablished)
    );
    // And in the middle of a transfer.
    let mut world = World::new([path::settings(); 2], Path::new(1, Faults::default()), 4);
    world.breaks_after = Some(100);
    world.run([10_000_000, 100]);
    for end in &world.ends {
        let ended = matches!(
            end.tcp.state(),
            State::Closed(Ending::TimedOut | Ending::Idle)
        );
        assert!(ended, "{end:?}");
    }
}

/// Numbers wrap around 2^32 within the stream.
#[test]
fn sequence_numbers_wrap() {
    for iss in [u32::MAX - 100_000, u32::MAX, 0, (1 << 31) - 50_000] {
        let mut world = World::new([path::settings(); 2], Path::new(5, ONE_PERCENT), 4);
        world.initial = [iss, iss.wrapping_sub(7)];
        world.transfer([300_000, 300_000]);
    }
}

#[test]
fn the_state_of_a_connection_is_small() {
    assert!(size_of::<Tcp>() <= 96, "{}", size_of::<Tcp>());
}
