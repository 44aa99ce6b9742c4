// SPDX-License-Identifier: Apache-2.0
//! Trace events of the service thread.

use super::{Counts, Layer3};
use crate::observe::{ServiceOutcome, Tracer};
use quietwire_tables::route::Punt;

impl Layer3 {
    /// Starts or stops tracing.
    pub(crate) fn set_tracer(&mut self, tracer: Option<Tracer>) {
        self.tracer = tracer;
    }

    /// Records the result of a punted frame. `before` are the counters before it was handled.
    pub(super) fn record_outcome(&mut self, packet: u32, punt: Punt, before: &Counts) {
        let served = served(punt, before, &self.counts);
        if let Some(tracer) = &mut self.tracer {
            tracer.served(packet, served);
        }
    }
}

fn served(punt: Punt, before: &Counts, now: &Counts) -> ServiceOutcome {
    if now.echoed > before.echoed {
        ServiceOutcome::Echoed
    } else if now.errors > before.errors {
        ServiceOutcome::Error
    } else if now.to_kernel > before.to_kernel {
        ServiceOutcome::ToKernel
    } else if punt == Punt::Neighbour {
        ServiceOutcome::Waits
    } else if now.unknown_protocol > before.unknown_protocol {
        ServiceOutcome::NoReceiver
    } else if matches!(punt, Punt::Arp | Punt::ForUs) {
        ServiceOutcome::Neighbours
    } else {
        ServiceOutcome::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_of_service_follows_from_its_counters() {
        let none = Counts::default();
        let echoed = Counts { echoed: 1, ..none };
        let unknown_protocol = Counts {
            unknown_protocol: 1,
            errors: 1,
            ..none
        };
        assert_eq!(served(Punt::ForUs, &none, &echoed), ServiceOutcome::Echoed);
        assert_eq!(
            served(Punt::ForUs, &none, &unknown_protocol),
            ServiceOutcome::Error
        );
        assert_eq!(served(Punt::Arp, &none, &none), ServiceOutcome::Neighbours);
        assert_eq!(served(Punt::Neighbour, &none, &none), ServiceOutcome::Waits);
        // An error was due, but the rate limit suppressed it.
        assert_eq!(
            served(Punt::NoRoute, &echoed, &echoed),
            ServiceOutcome::Nothing
        );
    }
}
