// SPDX-License-Identifier: Apache-2.0
//! Memory modules, from the structures of SMBIOS, type 17 (DMTF DSP0134, section 7.18). Only root may read them
//! (Documentation/ABI/testing/sysfs-firmware-dmi-entries).

use std::fs;
use std::path::Path;

use super::setting::MachineSetting;
use crate::files::names;

const DIRECTORY: &str = "sys/firmware/dmi/entries";
const SOURCE: &str = "/sys/firmware/dmi/entries/17-*/raw";

/// Offset of the size, 0 for an empty slot.
const SIZE: usize = 0x0c;
/// Offset of the configured speed, MT/s.
const CONFIGURED_SPEED: usize = 0x20;
/// Largest structure that is read, octets.
const LENGTH_MAX: usize = 4096;

pub(super) fn modules(root: &Path) -> MachineSetting {
    let directory = root.join(DIRECTORY);
    let entries = names(&directory).into_iter();
    let entries = entries.filter(|entry| entry.starts_with("17-"));
    let structures: Vec<Vec<u8>> = entries
        .filter_map(|entry| fs::read(directory.join(entry).join("raw")).ok())
        .filter(|octets| octets.len() <= LENGTH_MAX)
        .collect();
    let value = (!structures.is_empty()).then(|| described(&structures));
    MachineSetting::of(value, SOURCE)
}

fn described(structures: &[Vec<u8>]) -> String {
    let populated = structures
        .iter()
        .filter(|one| word(one, SIZE).is_some_and(|size| size != 0));
    let mut speeds: Vec<u16> = populated
        .clone()
        .filter_map(|one| word(one, CONFIGURED_SPEED).filter(|speed| *speed != 0))
        .collect();
    speeds.sort_unstable();
    speeds.dedup();
    let slots = format!(
        "{} of {} slots populated",
        populated.count(),
        structures.len()
    );
    if speeds.is_empty() {
        return slots;
    }
    let speeds: Vec<String> = speeds.iter().map(u16::to_string).collect();
    format!("{slots}, {} MT/s", speeds.join(" and "))
}

/// Returns a word. `None` if the structure, whose length is its second octet, is shorter: old firmware lacks fields.
fn word(octets: &[u8], offset: usize) -> Option<u16> {
    let length = usize::from(*octets.get(1)?).min(octets.len());
    let field = octets.get(..length)?.get(offset..offset + 2)?;
    Some(u16::from_le_bytes(field.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::setting::UNKNOWN;
    use super::*;
    use crate::tests::Machine;

    fn module(size: u16, speed: u16) -> Vec<u8> {
        let mut octets = vec![0; 0x28];
        octets[0] = 17;
        octets[1] = 0x28;
        octets[SIZE..SIZE + 2].copy_from_slice(&size.to_le_bytes());
        octets[CONFIGURED_SPEED..CONFIGURED_SPEED + 2].copy_from_slice(&speed.to_le_bytes());
        octets
    }

    #[test]
    fn populated_slots_are_counted_and_short_structures_have_no_speed() {
        let all = [module(16384, 3200), module(0, 0), module(0x7fff, 3200)];
        assert_eq!(described(&all), "2 of 3 slots populated, 3200 MT/s");
        let mut old = module(4096, 3200);
        old[1] = 0x15;
        assert_eq!(
            described(&[old, vec![17], Vec::new()]),
            "1 of 3 slots populated"
        );
        let machine = Machine::default().with("sys/firmware/dmi/entries/17-0/x", "");
        fs::write(
            machine.root().join("sys/firmware/dmi/entries/17-0/raw"),
            module(1, 0),
        )
        .unwrap();
        assert_eq!(modules(machine.root()).value, "1 of 1 slots populated");
        assert_eq!(modules(Machine::default().root()).value, UNKNOWN);
    }
}
