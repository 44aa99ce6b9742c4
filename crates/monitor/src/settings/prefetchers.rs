// SPDX-License-Identifier: Apache-2.0
//! Hardware prefetchers of Intel processors, from MSR_MISC_FEATURE_CONTROL (Intel Software Developer's Manual, volume 4). Reading it requires
//! the kernel module msr and CAP_SYS_RAWIO (msr(4)).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use quietwire_base::proc::cpuinfo_field;

use super::setting::MachineSetting;
use crate::files::text;

/// Address of the register.
const REGISTER: u64 = 0x1a4;
const SOURCE: &str = "MSR 0x1a4 of CPU 0 (/dev/cpu/0/msr)";

/// Prefetchers by bit. A set bit disables the prefetcher.
const NAMES: [&str; 4] = ["L2 stream", "L2 adjacent line", "L1 stream", "L1 stride"];

pub(super) fn prefetchers(root: &Path) -> MachineSetting {
    MachineSetting::of(value(root), SOURCE)
}

fn value(root: &Path) -> Option<String> {
    // Other vendors have another register at this address, or none.
    let cpuinfo = text(&root.join("proc/cpuinfo"))?;
    if cpuinfo_field(&cpuinfo, "vendor_id") != Some("GenuineIntel") {
        return None;
    }
    let file = File::open(root.join("dev/cpu/0/msr")).ok()?;
    let mut octets = [0; 8];
    file.read_exact_at(&mut octets, REGISTER).ok()?;
    Some(described(u64::from_le_bytes(octets)))
}

fn described(register: u64) -> String {
    let disabled = NAMES
        .iter()
        .enumerate()
        .filter(|(bit, _)| (register >> bit) & 1 == 1);
    let disabled: Vec<&str> = disabled.map(|(_, name)| *name).collect();
    if disabled.is_empty() {
        "all enabled".to_owned()
    } else {
        format!("disabled: {}", disabled.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::setting::UNKNOWN;
    use super::*;
    use crate::tests::Machine;

    #[test]
    fn prefetchers_are_those_of_the_register() {
        assert_eq!(described(0), "all enabled");
        assert_eq!(described(0b101), "disabled: L2 stream, L1 stream");
        let machine = |vendor: &str| {
            let machine =
                Machine::default().with("proc/cpuinfo", &format!("vendor_id\t: {vendor}\n"));
            let machine = machine.with("dev/cpu/0/msr", "");
            let mut octets = vec![0; 0x1a4];
            octets.extend(2u64.to_le_bytes());
            fs::write(machine.root().join("dev/cpu/0/msr"), octets).unwrap();
            machine
        };
        let read = |vendor: &str| prefetchers(machine(vendor).root()).value;
        assert_eq!(read("GenuineIntel"), "disabled: L2 adjacent line");
        assert_eq!(read("AuthenticAMD"), UNKNOWN);
    }
}
