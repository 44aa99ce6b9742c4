// SPDX-License-Identifier: Apache-2.0
//! Limit of DPDK on ports that have a driver of its own.

use crate::sys;
use crate::uri::PortKind;

/// Maximum number of ports of a process that have a driver of DPDK ([`PortKind::is_device`]): `RTE_MAX_ETHPORTS` of the library that this
/// program was built with. Other ports have no such limit.
pub const DEVICES_MAX: usize = sys::RTE_MAX_ETHPORTS as usize;

/// Returns the problem of a port beyond [`DEVICES_MAX`], and the limit.
#[must_use]
pub fn too_many_devices() -> String {
    let kinds = PortKind::ALL.into_iter().filter(|kind| kind.is_device());
    let kinds: Vec<&str> = kinds.map(PortKind::name).collect();
    format!(
        "too many ports of the kinds {} (maximum: {DEVICES_MAX} in sum, the limit of DPDK for ports with its drivers)",
        kinds.join(", ")
    )
}

/// Returns true if DPDK has no space for another device. The EAL must be started.
pub(crate) fn is_full() -> bool {
    // SAFETY: reads the table of devices of the EAL.
    let count = unsafe { sys::rte_eth_dev_count_total() };
    usize::from(count) >= DEVICES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problem_names_the_kinds_and_the_limit() {
        let problem = too_many_devices();
        let limit = format!("maximum: {DEVICES_MAX} ");
        for part in ["af-xdp, pci, pcap, null", limit.as_str()] {
            assert!(problem.contains(part), "{problem}");
        }
        assert!(!problem.contains("memif"), "{problem}");
    }
}
