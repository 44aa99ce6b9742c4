// SPDX-License-Identifier: Apache-2.0
//! Random choices that can be repeated.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A generator of numbers (xorshift64*).
pub(crate) struct Chance(u64);

impl Chance {
    /// From `QUIETWIRE_SEED`, else from the clock. Prints the seed, which a test that fails shows.
    pub(crate) fn new() -> Self {
        let seed = std::env::var("QUIETWIRE_SEED").map_or_else(
            |_| {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                now.as_nanos() as u64
            },
            |seed| seed.parse().expect("QUIETWIRE_SEED is a number"),
        );
        println!("QUIETWIRE_SEED={seed}");
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number from `least` to `most`.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }
}

/// How long an attack lasts: `QUIETWIRE_HOSTILE_SECONDS`, else 1 second.
pub(crate) fn attack_time() -> Duration {
    Duration::from_secs(from_environment("QUIETWIRE_HOSTILE_SECONDS").unwrap_or(1))
}

/// A number in the environment.
pub(crate) fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is not a number")))
}
