// SPDX-License-Identifier: Apache-2.0
//! Driver drop counters that never decrease.

use quietwire_dpdk::PortHandle;

/// Non-decreasing view of a driver counter, which may restart at 0 when its peer is replaced.
#[derive(Clone, Copy, Debug, Default)]
struct MonotonicCounter {
    total: u64,
    last: u64,
}

impl MonotonicCounter {
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow"
    )]
    fn update(&mut self, observed: u64) -> u64 {
        self.total += observed.checked_sub(self.last).unwrap_or(observed);
        self.last = observed;
        self.total
    }
}

/// Frames lost by a driver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DriverDrops {
    no_buffers: MonotonicCounter,
    rx_missed: MonotonicCounter,
    rx_errors: MonotonicCounter,
}

impl DriverDrops {
    /// Reads the counters of the port.
    pub(crate) fn update(&mut self, handle: &PortHandle) {
        let observed = handle.stats();
        self.no_buffers.update(observed.rx_no_buffers);
        self.rx_missed.update(observed.rx_missed);
        self.rx_errors.update(observed.rx_errors);
    }

    /// Frames lost because no buffer was available.
    pub(crate) const fn no_buffers(&self) -> u64 {
        self.no_buffers.total
    }

    /// Frames lost because the receive ring was full.
    pub(crate) const fn rx_missed(&self) -> u64 {
        self.rx_missed.total
    }

    /// Returns the number of damaged frames received.
    pub(crate) const fn rx_errors(&self) -> u64 {
        self.rx_errors.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_again_still_grows() {
        let mut growing = MonotonicCounter::default();
        let observed: Vec<u64> = [3, 5, 5, 0, 2, 1]
            .into_iter()
            .map(|n| growing.update(n))
            .collect();
        assert_eq!(observed, [3, 5, 5, 5, 7, 8]);
    }
}
