// SPDX-License-Identifier: Apache-2.0
//! Firmware and board, from DMI (Documentation/ABI/testing/sysfs-class-dmi, drivers/firmware/dmi-id.c).

use std::path::Path;

use super::setting::MachineSetting;
use crate::files::text;

const DIRECTORY: &str = "sys/class/dmi/id";

/// Names of settings, and the files of which each consists.
const SETTINGS: [(&str, &[&str]); 3] = [
    ("firmware", &["bios_vendor", "bios_version", "bios_date"]),
    ("board", &["board_vendor", "board_name", "board_version"]),
    ("product", &["sys_vendor", "product_name"]),
];

pub(super) fn firmware(root: &Path) -> Vec<(String, MachineSetting)> {
    let of = |(name, files): (&str, &[&str])| {
        let parts: Vec<String> = files
            .iter()
            .filter_map(|file| text(&root.join(DIRECTORY).join(file)))
            .collect();
        let value = (!parts.is_empty()).then(|| parts.join(", "));
        let source = format!("/{DIRECTORY}/{{{}}}", files.join(","));
        (name.to_owned(), MachineSetting::of(value, source))
    };
    SETTINGS.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Machine;

    #[test]
    fn the_firmware_has_vendor_version_and_date() {
        let machine = Machine::default()
            .with("sys/class/dmi/id/bios_vendor", "SeaBIOS\n")
            .with("sys/class/dmi/id/bios_date", "04/01/2014\n");
        let found = firmware(machine.root());
        assert_eq!(found[0].1.value, "SeaBIOS, 04/01/2014");
        assert_eq!(
            found[0].1.source,
            "/sys/class/dmi/id/{bios_vendor,bios_version,bios_date}"
        );
        assert_eq!(found[1].1.value, super::super::setting::UNKNOWN);
    }
}
