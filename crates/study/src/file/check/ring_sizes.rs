// SPDX-License-Identifier: Apache-2.0
//! Sizes of rings.

use super::super::Device;
use super::super::limits::{Checked, fault};
use super::super::locate::At::Key;

/// Largest ring size that DPDK's drivers for these links support.
pub(super) const RING_SIZE_MAX: u16 = 16_384;

pub(super) fn rings(device: &Device) -> Checked {
    let rings = [
        ("rx-ring-size", device.rx_ring_size),
        ("tx-ring-size", device.tx_ring_size),
    ];
    for (key, size) in rings {
        if !size.is_power_of_two() || !(64..=RING_SIZE_MAX).contains(&size) {
            return fault(
                &[Key("device"), Key(key)],
                format!("{size} must be a power of two from 64 to {RING_SIZE_MAX}"),
            );
        }
    }
    Ok(())
}
