// SPDX-License-Identifier: Apache-2.0
//! Virtual functions (SR-IOV) of network cards, as the kernel shows them: `virtfnN` below `/sys/bus/pci/devices/ADDRESS`
//! (Documentation/ABI/testing/sysfs-bus-pci).

use std::collections::BTreeMap;
use std::path::Path;

/// Returns a separate virtual function for each port, of the named cards: the next function if a card is named again.
///
/// # Errors
/// The card that has no function left, as a clause.
pub(super) fn of_ports(root: &Path, ports: &[String]) -> Result<Vec<String>, String> {
    let mut taken: BTreeMap<String, u32> = BTreeMap::new();
    let of_port = |port: &String| {
        let next = taken.entry(port.clone()).or_default();
        let number = *next;
        let link = root.join(format!("sys/bus/pci/devices/{port}/virtfn{number}"));
        *next = number.saturating_add(1);
        let target = std::fs::read_link(&link);
        let name = target.ok().and_then(|path| {
            let name = path.file_name()?;
            Some(name.to_string_lossy().into_owned())
        });
        name.ok_or_else(|| {
            format!("the network controller {port} has no virtual function {number}")
        })
    };
    ports.iter().map(of_port).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_port_has_a_function_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        let cards = ["0000:17:00.0", "0000:17:00.1"];
        for (card, functions) in cards.iter().zip([2, 1]) {
            let card_directory = root.path().join("sys/bus/pci/devices").join(card);
            fs::create_dir_all(&card_directory).unwrap();
            for number in 0..functions {
                let bus = if card.ends_with('0') { "0a" } else { "0e" };
                let target = format!("../0000:17:{bus}.{number}");
                symlink(target, card_directory.join(format!("virtfn{number}"))).unwrap();
            }
        }
        let ports = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            of_ports(root.path(), &names)
        };
        let reported = ports(&[cards[0], cards[1]]).unwrap();
        assert_eq!(reported, ["0000:17:0a.0", "0000:17:0e.0"]);
        let reported = ports(&[cards[0], cards[0]]).unwrap();
        assert_eq!(reported, ["0000:17:0a.0", "0000:17:0a.1"]);
        let why = ports(&[cards[1], cards[1]]).unwrap_err();
        assert!(
            why.contains("0000:17:00.1 has no virtual function 1"),
            "{why}"
        );
    }
}
