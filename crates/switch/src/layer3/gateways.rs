// SPDX-License-Identifier: Apache-2.0
//! Periodic resolution of unresolved gateways, independent of packets. Routes through a gateway that was away work as soon as it returns.

use std::net::IpAddr;
use std::time::Duration;

/// Interval between rounds. Each request is retransmitted as for any neighbour.
const ROUND: Duration = Duration::from_secs(5);
/// Interval between gateways, so that neighbours of packets are resolved as well.
const PAUSE: Duration = Duration::from_millis(1);

/// Remaining gateways of a round.
#[derive(Debug, Default)]
pub(super) struct Missing {
    rest: Vec<(u16, IpAddr)>,
    begins: Duration,
    goes_on: Duration,
}

impl Missing {
    /// Returns the next gateway to resolve, if it is due. `all` lists the unresolved gateways, once a round.
    pub(super) fn next(
        &mut self,
        now: Duration,
        all: impl FnOnce() -> Vec<(u16, IpAddr)>,
    ) -> Option<(u16, IpAddr)> {
        if now < self.goes_on {
            return None;
        }
        if self.rest.is_empty() {
            if now < self.begins {
                return None;
            }
            self.begins = now.saturating_add(ROUND);
            self.rest = all();
        }
        self.goes_on = now.saturating_add(PAUSE);
        self.rest.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_gateway_is_named_once_a_round() {
        let ms = Duration::from_millis;
        let gateway = |n: u16| (n, IpAddr::from([192, 0, 2, 1]));
        let all = || vec![gateway(1), gateway(2)];
        let mut missing = Missing::default();
        assert_eq!(missing.next(ms(0), all), Some(gateway(2)));
        assert_eq!(missing.next(ms(0), all), None);
        assert_eq!(missing.next(ms(1), all), Some(gateway(1)));
        assert_eq!(missing.next(ms(2), all), None);
        assert_eq!(missing.next(ms(4_999), all), None);
        assert_eq!(missing.next(ms(5_000), all), Some(gateway(2)));
        // A gateway resolved meanwhile is not in the next round.
        assert_eq!(missing.next(ms(5_001), all), Some(gateway(1)));
        assert_eq!(missing.next(ms(10_000), Vec::new), None);
        assert_eq!(missing.next(ms(15_000), all), Some(gateway(2)));
    }
}
