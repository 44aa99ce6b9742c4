// SPDX-License-Identifier: Apache-2.0
//! Repeatable random choices.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A random number generator (xorshift64*).
pub(crate) struct Rng(u64);

impl Rng {
    /// Returns a generator seeded by `QUIETWIRE_SEED`, otherwise by the clock. Prints the seed, which a failed test shows.
    pub(crate) fn new() -> Self {
        let seed = std::env::var("QUIETWIRE_SEED").map_or_else(
            |_| {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                now.as_nanos() as u64
            },
            |seed| seed.parse().expect("QUIETWIRE_SEED is a number"),
        );
        println!("QUIETWIRE_SEED={seed}");
        Self::of(seed)
    }

    /// Returns a generator with a seed.
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number from `least` to `most`.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }
}

/// Returns the duration of an attack: `QUIETWIRE_HOSTILE_SECONDS`, default half a second.
pub(crate) fn attack_time() -> Duration {
    from_environment("QUIETWIRE_HOSTILE_SECONDS")
        .map_or(Duration::from_millis(500), Duration::from_secs)
}

/// Returns a number from the environment.
pub(crate) fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is not a number")))
}
