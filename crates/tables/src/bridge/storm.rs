// SPDX-License-Identifier: Apache-2.0
//! Storm control: a token bucket for each kind of flooded frame, filled by a clock that the caller provides.

use super::settings::StormLimits;
use crate::drops::PortDrop;

/// Kind of a flooded frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unicast to an unknown destination.
    UnknownUnicast,
    /// Broadcast.
    Broadcast,
    /// Multicast.
    Multicast,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::UnknownUnicast, Self::Broadcast, Self::Multicast];

    /// Returns the drop reason of frames over the limit of this kind.
    pub(super) const fn storm(self) -> PortDrop {
        match self {
            Self::UnknownUnicast => PortDrop::StormUnknownUnicast,
            Self::Broadcast => PortDrop::StormBroadcast,
            Self::Multicast => PortDrop::StormMulticast,
        }
    }
}

/// Depth of a bucket as a fraction of a second: the largest burst after a pause.
const DEPTH_PARTS: u64 = 10;

/// A token bucket. Tokens are counted in ticks of the clock times frames per second; a frame costs the ticks of one second.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate_pps: u64,
    frame: u64,
    depth: u64,
    tokens: u64,
}

impl Bucket {
    fn new(rate_pps: u32, ticks_per_s: u64) -> Self {
        let rate_pps = u64::from(rate_pps);
        let frames = (rate_pps / DEPTH_PARTS).max(1);
        let depth = frames.saturating_mul(ticks_per_s);
        Self {
            rate_pps,
            frame: ticks_per_s,
            depth,
            tokens: depth,
        }
    }

    #[inline(always)]
    fn fill(&mut self, ticks: u64) {
        let gained = ticks.saturating_mul(self.rate_pps);
        self.tokens = self.tokens.saturating_add(gained).min(self.depth);
    }

    #[inline(always)]
    fn take(&mut self) -> bool {
        match self.tokens.checked_sub(self.frame) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }
}

/// Storm limits of one port and their remaining budget, owned by the one thread that reads the port.
#[derive(Clone, Debug, Default)]
pub struct Storm {
    buckets: [Option<Bucket>; 3],
    last_ticks: u64,
}

impl Storm {
    /// Creates full buckets. The clock has `ticks_per_s` ticks per second (at least 1) and now stands at `ticks`.
    #[must_use]
    pub fn new(limits: &StormLimits, ticks_per_s: u64, ticks: u64) -> Self {
        let limits = [
            limits.unknown_unicast_pps,
            limits.broadcast_pps,
            limits.multicast_pps,
        ];
        let bucket =
            |rate_pps: Option<u32>| rate_pps.map(|rate| Bucket::new(rate, ticks_per_s.max(1)));
        Self {
            buckets: limits.map(bucket),
            last_ticks: ticks,
        }
    }

    /// Advances the time. A clock that goes back counts as standing still.
    #[inline(always)]
    pub(super) fn fill(&mut self, ticks: u64) {
        let passed = ticks.saturating_sub(self.last_ticks);
        if passed == 0 {
            return;
        }
        self.last_ticks = ticks;
        for bucket in self.buckets.iter_mut().flatten() {
            bucket.fill(passed);
        }
    }

    /// Returns true if one more frame of this kind may pass, and takes its tokens.
    #[inline(always)]
    pub(super) fn allows(&mut self, kind: Kind) -> bool {
        let [unknown, broadcast, multicast] = &mut self.buckets;
        let bucket = match kind {
            Kind::UnknownUnicast => unknown,
            Kind::Broadcast => broadcast,
            Kind::Multicast => multicast,
        };
        bucket.as_mut().is_none_or(Bucket::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// In any interval at most the depth plus the rate pass. Under permanent overload, no fewer than that pass in all.
        #[test]
        fn the_rate_is_kept(
            rate_pps in 1..100_000u32, ticks_per_s in 1..4_000_000_000u64,
            pauses in prop::collection::vec((0..2_000_000u64, 0..300u32), 1..60),
        ) {
            let limits = StormLimits { broadcast_pps: Some(rate_pps), ..StormLimits::default() };
            let mut storm = Storm::new(&limits, ticks_per_s, 7);
            let (mut ticks, mut passed) = (7u64, 0u64);
            for (pause, frames) in pauses {
                ticks += pause;
                storm.fill(ticks);
                for _ in 0..frames {
                    prop_assert!(storm.allows(Kind::Multicast) && storm.allows(Kind::UnknownUnicast));
                    passed += u64::from(storm.allows(Kind::Broadcast));
                }
                let depth = u64::from(rate_pps / 10).max(1);
                let earned = u128::from(ticks - 7) * u128::from(rate_pps) / u128::from(ticks_per_s);
                prop_assert!(u128::from(passed) <= u128::from(depth) + earned);
            }
        }
    }

    #[test]
    fn a_full_bucket_is_a_tenth_of_a_second() {
        let limits = StormLimits {
            unknown_unicast_pps: Some(1000),
            ..StormLimits::default()
        };
        let mut storm = Storm::new(&limits, 1_000_000, 0);
        let mut pass = |ticks, frames: u32| {
            storm.fill(ticks);
            (0..frames)
                .filter(|_| storm.allows(Kind::UnknownUnicast))
                .count()
        };
        assert_eq!(pass(0, 200), 100);
        assert_eq!(pass(999, 5), 0);
        assert_eq!(pass(1000, 5), 1);
        assert_eq!(pass(11_000, 50), 10);
        assert_eq!(pass(5_000_000, 200), 100);
        assert_eq!(pass(0, 200), 0);
    }
}
