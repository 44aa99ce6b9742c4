// SPDX-License-Identifier: Apache-2.0
//! Power saving of Intel processors that the firmware sets and no file of the kernel shows (Intel Software Developer's Manual, volume 4).

use std::path::Path;

use super::registers::{is_set, of_intel, source};
use super::setting::MachineSetting;

/// Name of a setting, address of its register, and text of the register's value.
type Register = (&'static str, u64, fn(u64) -> String);

const REGISTERS: [Register; 3] = [
    // MSR_POWER_CTL: the processor enters C1E instead of C1.
    ("C1E promotion", 0x1fc, |value| switched(is_set(value, 1))),
    // IA32_PM_ENABLE: the processor selects its frequency itself (HWP).
    ("hardware P-states", 0x770, |value| {
        switched(is_set(value, 0))
    }),
    // MSR_PKG_CST_CONFIG_CONTROL: the meaning of the limit depends on the model.
    ("package C-state limit", 0xe2, limit),
];

/// Bits of the limit in MSR_PKG_CST_CONFIG_CONTROL.
const LIMIT: u64 = 0xf;
/// Bit of MSR_PKG_CST_CONFIG_CONTROL that locks it until the next reset.
const LOCK: usize = 15;

pub(super) fn power(root: &Path) -> Vec<(String, MachineSetting)> {
    let of = |(name, address, text): Register| {
        let value = of_intel(root, address).map(text);
        (name.to_owned(), MachineSetting::of(value, source(address)))
    };
    REGISTERS.into_iter().map(of).collect()
}

fn switched(is_on: bool) -> String {
    let text = if is_on { "on" } else { "off" };
    text.to_owned()
}

fn limit(register: u64) -> String {
    let locked = if is_set(register, LOCK) {
        ", locked"
    } else {
        ""
    };
    format!("code {}{locked}", register & LIMIT)
}

#[cfg(test)]
mod tests {
    use super::super::setting::UNKNOWN;
    use super::*;
    use crate::tests::Machine;

    #[test]
    fn power_saving_is_that_of_the_registers() {
        let read = |vendor: &str, name: &str, address: u64, value: u64| {
            let machine = Machine::default().with_register(vendor, address, value);
            let mut all = power(machine.root()).into_iter();
            all.find(|(known, _)| known == name).unwrap().1.value
        };
        let intel = "GenuineIntel";
        assert_eq!(read(intel, "C1E promotion", 0x1fc, 0b10), "on");
        assert_eq!(read(intel, "C1E promotion", 0x1fc, 0b101), "off");
        assert_eq!(read(intel, "hardware P-states", 0x770, 1), "on");
        let limits = [(0x1e00_8002, "code 2, locked"), (0x8, "code 8")];
        for (value, wanted) in limits {
            assert_eq!(read(intel, "package C-state limit", 0xe2, value), wanted);
        }
        assert_eq!(read("AuthenticAMD", "C1E promotion", 0x1fc, 2), UNKNOWN);
    }
}
