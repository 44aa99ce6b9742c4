// SPDX-License-Identifier: Apache-2.0
//! Hardware prefetchers of Intel processors, from MSR_MISC_FEATURE_CONTROL (Intel Software Developer's Manual, volume 4).

use std::path::Path;

use super::registers::{is_set, of_intel, source};
use super::setting::MachineSetting;

/// Address of the register.
const REGISTER: u64 = 0x1a4;

/// Prefetchers by bit. A set bit disables the prefetcher.
const NAMES: [&str; 4] = ["L2 stream", "L2 adjacent line", "L1 stream", "L1 stride"];

pub(super) fn prefetchers(root: &Path) -> MachineSetting {
    MachineSetting::of(of_intel(root, REGISTER).map(described), source(REGISTER))
}

fn described(register: u64) -> String {
    let disabled = NAMES
        .iter()
        .enumerate()
        .filter(|(bit, _)| is_set(register, *bit));
    let disabled: Vec<&str> = disabled.map(|(_, name)| *name).collect();
    if disabled.is_empty() {
        "all enabled".to_owned()
    } else {
        format!("disabled: {}", disabled.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::setting::UNKNOWN;
    use super::*;
    use crate::tests::Machine;

    #[test]
    fn prefetchers_are_those_of_the_register() {
        assert_eq!(described(0), "all enabled");
        assert_eq!(described(0b101), "disabled: L2 stream, L1 stream");
        let read = |vendor: &str| {
            let machine = Machine::default().with_register(vendor, REGISTER, 2);
            prefetchers(machine.root()).value
        };
        assert_eq!(read("GenuineIntel"), "disabled: L2 adjacent line");
        assert_eq!(read("AuthenticAMD"), UNKNOWN);
    }
}
