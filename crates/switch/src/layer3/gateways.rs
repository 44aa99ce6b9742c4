// SPDX-License-Identifier: Apache-2.0
//! Gateways that are not found are asked for again and again, without any packet for them: routes by way of one that was
//! away for a while work as soon as it is back.

use std::net::IpAddr;
use std::time::Duration;

/// From one round of questions to the next. Each question is repeated as for any neighbour.
const ROUND: Duration = Duration::from_secs(5);
/// From one gateway to the next, so that packets' neighbours are asked for as well.
const PAUSE: Duration = Duration::from_millis(1);

/// What is left of a round.
#[derive(Debug, Default)]
pub(super) struct Missing {
    rest: Vec<(u16, IpAddr)>,
    begins: Duration,
    goes_on: Duration,
}

impl Missing {
    /// The next gateway to ask for, if it is time. `all` tells which are missing, once a round.
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
            self.begins = now + ROUND;
            self.rest = all();
        }
        self.goes_on = now + PAUSE;
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
        // Of one that has been found meanwhile nothing is heard in the next round.
        assert_eq!(missing.next(ms(5_001), all), Some(gateway(1)));
        assert_eq!(missing.next(ms(10_000), Vec::new), None);
        assert_eq!(missing.next(ms(15_000), all), Some(gateway(2)));
    }
}
