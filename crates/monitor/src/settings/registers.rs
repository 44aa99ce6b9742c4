// SPDX-License-Identifier: Apache-2.0
//! Model-specific registers of Intel processors (msr(4)). Reading them requires the kernel module msr and CAP_SYS_RAWIO.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use quietwire_base::proc::cpuinfo_field;

use crate::files::text;

/// Returns the value of a register of CPU 0. `None` if it cannot be read or does not exist, or if the processor is not one of Intel: others
/// have another register at the address, or none.
pub(super) fn of_intel(root: &Path, address: u64) -> Option<u64> {
    let cpuinfo = text(&root.join("proc/cpuinfo"))?;
    if cpuinfo_field(&cpuinfo, "vendor_id") != Some("GenuineIntel") {
        return None;
    }
    let file = File::open(root.join("dev/cpu/0/msr")).ok()?;
    let mut octets = [0; 8];
    file.read_exact_at(&mut octets, address).ok()?;
    Some(u64::from_le_bytes(octets))
}

/// Returns the source of a register.
pub(super) fn source(address: u64) -> String {
    format!("MSR {address:#x} of CPU 0 (/dev/cpu/0/msr)")
}

/// Returns whether a bit of a value is set.
pub(super) const fn is_set(value: u64, bit: usize) -> bool {
    (value >> bit) & 1 == 1
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tests::Machine;

    #[test]
    fn registers_of_other_vendors_are_unknown() {
        let machine = |vendor: &str| Machine::default().with_register(vendor, 0x1fc, 5);
        let intel = machine("GenuineIntel");
        assert_eq!(of_intel(intel.root(), 0x1fc), Some(5));
        assert_eq!(of_intel(machine("AuthenticAMD").root(), 0x1fc), None);
        // The register does not exist.
        assert_eq!(of_intel(intel.root(), 0x770), None);
        fs::remove_file(intel.root().join("dev/cpu/0/msr")).unwrap();
        assert_eq!(of_intel(intel.root(), 0x1fc), None);
        assert!(is_set(0b100, 2) && !is_set(0b100, 1));
    }
}
