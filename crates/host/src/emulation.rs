// SPDX-License-Identifier: Apache-2.0
//! Whether this machine is itself emulated in software, so that its rates are those of an emulator.

use std::fs;
use std::path::Path;

/// Vendor in the firmware tables of QEMU's machines (drivers/firmware/dmi-id.c).
const QEMU: &str = "QEMU";
/// Clock that a kernel has under KVM (arch/x86/kernel/kvmclock.c).
const KVM_CLOCK: &str = "kvm-clock";
/// Clocks of x86 machines (arch/x86/kernel/tsc.c and hpet.c, drivers/clocksource/acpi_pm.c). Kernels of other architectures have no clock
/// of KVM, emulated or not.
const X86_CLOCKS: [&str; 3] = ["tsc", "hpet", "acpi_pm"];

/// Returns a warning for all rates and latencies that are measured on this machine, if it is an x86 guest of QEMU whose kernel has no
/// clock of KVM: such a guest runs in software emulation. `root` is `/` or that of a recorded machine.
#[must_use]
pub fn warning(root: &Path) -> Option<String> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let is_of_qemu = read("sys/class/dmi/id/sys_vendor").trim() == QEMU;
    let clocks = read("sys/devices/system/clocksource/clocksource0/available_clocksource");
    let has_one_of = |known: &[&str]| {
        clocks
            .split_whitespace()
            .any(|clock| known.contains(&clock))
    };
    let is_emulated = is_of_qemu && has_one_of(&X86_CLOCKS) && !has_one_of(&[KVM_CLOCK]);
    is_emulated.then(|| {
        "this machine is a guest of QEMU without KVM, so it runs in software emulation: rates and latencies are those of the emulator and have no meaning".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_of_qemu_without_a_clock_of_kvm_are_emulated() {
        for (vendor, clocks, is_emulated) in [
            ("QEMU\n", "tsc hpet acpi_pm \n", true),
            ("QEMU\n", "kvm-clock tsc acpi_pm \n", false),
            ("Dell Inc.\n", "tsc hpet acpi_pm \n", false),
            ("QEMU\n", "arch_sys_counter \n", false),
            ("QEMU\n", "", false),
        ] {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in [
                ("sys/class/dmi/id/sys_vendor", vendor),
                (
                    "sys/devices/system/clocksource/clocksource0/available_clocksource",
                    clocks,
                ),
            ] {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let found = warning(root.path());
            assert_eq!(found.is_some(), is_emulated, "{vendor}{clocks}");
        }
        let root = tempfile::tempdir().unwrap();
        assert_eq!(warning(root.path()), None);
    }
}
