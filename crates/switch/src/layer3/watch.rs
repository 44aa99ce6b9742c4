// SPDX-License-Identifier: Apache-2.0
//! Trace events of the service thread.

use super::{Counts, Layer3};
use crate::observe::{Served, Tracer};
use quietwire_tables::route::Punt;

impl Layer3 {
    /// Starts or stops tracing.
    pub(crate) fn set_tracer(&mut self, tracer: Option<Tracer>) {
        self.tracer = tracer;
    }

    /// Records the result of a punted frame. `before` are the counters before it was handled.
    pub(super) fn tell_of(&mut self, packet: u32, punt: Punt, before: &Counts) {
        let served = served(punt, before, &self.counts);
        if let Some(tracer) = &mut self.tracer {
            tracer.served(packet, served);
        }
    }
}

fn served(punt: Punt, before: &Counts, now: &Counts) -> Served {
    if now.echoed > before.echoed {
        Served::Echoed
    } else if now.errors > before.errors {
        Served::Error
    } else if now.to_kernel > before.to_kernel {
        Served::ToKernel
    } else if punt == Punt::Neighbour {
        Served::Waits
    } else if now.unclaimed > before.unclaimed {
        Served::Unclaimed
    } else if matches!(punt, Punt::Arp | Punt::ForUs) {
        Served::Neighbours
    } else {
        Served::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_says_what_was_done() {
        let none = Counts::default();
        let echoed = Counts { echoed: 1, ..none };
        let unclaimed = Counts {
            unclaimed: 1,
            errors: 1,
            ..none
        };
        assert_eq!(served(Punt::ForUs, &none, &echoed), Served::Echoed);
        assert_eq!(served(Punt::ForUs, &none, &unclaimed), Served::Error);
        assert_eq!(served(Punt::Arp, &none, &none), Served::Neighbours);
        assert_eq!(served(Punt::Neighbour, &none, &none), Served::Waits);
        // An error was due, but the rate limit suppressed it.
        assert_eq!(served(Punt::NoRoute, &echoed, &echoed), Served::Nothing);
    }
}
