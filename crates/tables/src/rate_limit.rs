// SPDX-License-Identifier: Apache-2.0
//! Rate limits of packets that the router itself sends, by a clock that the caller provides.

use std::collections::BTreeMap;
use std::time::Duration;

/// A token, and a tenth of it, in millionths.
const TOKEN: u64 = 1_000_000;
const TENTH: u64 = TOKEN / 10;

/// Rate limit: a number per second, and a part of that in a burst.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    per_second: u32,
    /// Part of the number per second in a burst, in millionths.
    burst: u64,
    /// Tokens, in millionths.
    tokens: u64,
    filled: Duration,
    suppressed: u64,
}

impl RateLimit {
    /// Creates a limit of this number per second, and a tenth of that in a burst, as for ICMP errors (RFC 1812, section 4.3.2.8; RFC 4443,
    /// section 2.4 (f)).
    #[must_use]
    pub const fn new(per_second: u32) -> Self {
        Self::with_burst(per_second, TENTH)
    }

    /// Creates a limit of this number per second, and the same number in a burst.
    pub(crate) const fn with_full_burst(per_second: u32) -> Self {
        Self::with_burst(per_second, TOKEN)
    }

    const fn with_burst(per_second: u32, burst: u64) -> Self {
        Self {
            per_second,
            burst,
            tokens: (per_second as u64).saturating_mul(burst),
            filled: Duration::ZERO,
            suppressed: 0,
        }
    }

    /// Returns true if another packet may be sent now, and takes a token.
    pub fn take(&mut self, now: Duration) -> bool {
        let per_second = u64::from(self.per_second);
        let most = per_second.saturating_mul(self.burst).max(TOKEN);
        let since = now.saturating_sub(self.filled).as_micros();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        // Fractions of a microsecond carry over to the next call.
        self.filled = self.filled.saturating_add(Duration::from_micros(since));
        let more = since.saturating_mul(per_second);
        self.tokens = self.tokens.saturating_add(more).min(most);
        let left = self.tokens.checked_sub(TOKEN);
        match left {
            Some(left) => self.tokens = left,
            None => self.suppressed = self.suppressed.saturating_add(1),
        }
        left.is_some()
    }

    /// Returns the number of suppressed packets.
    #[must_use]
    pub const fn suppressed(&self) -> u64 {
        self.suppressed
    }
}

/// Rate limits by interface: the packets of one suppress none of the others. Path MTU discovery requires this of ICMP errors (RFC 8201).
#[derive(Clone, Debug)]
pub struct InterfaceRateLimits {
    /// The unused limit of an interface.
    each: RateLimit,
    limits: BTreeMap<u16, RateLimit>,
}

impl InterfaceRateLimits {
    /// Creates limits, each of which begins like this one.
    #[must_use]
    pub const fn new(each: RateLimit) -> Self {
        Self {
            each,
            limits: BTreeMap::new(),
        }
    }

    /// Returns true if another packet may be sent now because of a packet of an interface, and takes a token. Each number of an interface
    /// takes memory once.
    pub fn take(&mut self, interface: u16, now: Duration) -> bool {
        let limit = self.limits.entry(interface).or_insert(self.each);
        limit.take(now)
    }
}
