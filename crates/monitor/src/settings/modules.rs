// SPDX-License-Identifier: Apache-2.0
//! Memory modules, from the structures of SMBIOS, type 17 (DMTF DSP0134, section 7.18). Only root may read them
//! (Documentation/ABI/testing/sysfs-firmware-dmi-entries).

use std::fs;
use std::path::Path;

use super::setting::MachineSetting;
use crate::files::names;

const DIRECTORY: &str = "sys/firmware/dmi/entries";
const SOURCE: &str = "/sys/firmware/dmi/entries/17-*/raw";

/// Offset of the length of the formatted part. Its texts follow, each with a zero at its end.
const LENGTH: usize = 0x01;
/// Offset of the size, 0 for an empty slot.
const SIZE: usize = 0x0c;
/// Offsets of the numbers, from 1, of the texts that name the slot and its bank, such as its memory channel.
const SLOT: usize = 0x10;
const BANK: usize = 0x11;
/// Offset of the configured speed, MT/s.
const CONFIGURED_SPEED: usize = 0x20;
/// Largest structure that is read, octets.
const LENGTH_MAX: usize = 4096;

/// Returns number and speed of the modules, and the names of the populated slots. The firmware's names of slots or banks contain the memory
/// channels.
pub(super) fn memory(root: &Path) -> [(String, MachineSetting); 2] {
    let directory = root.join(DIRECTORY);
    let entries = names(&directory).into_iter();
    let entries = entries.filter(|entry| entry.starts_with("17-"));
    let structures: Vec<Vec<u8>> = entries
        .filter_map(|entry| fs::read(directory.join(entry).join("raw")).ok())
        .filter(|octets| octets.len() <= LENGTH_MAX)
        .collect();
    let modules = (!structures.is_empty()).then(|| described(&structures));
    [
        ("memory modules", modules),
        ("populated memory slots", slots(&structures)),
    ]
    .map(|(name, value)| (name.to_owned(), MachineSetting::of(value, SOURCE)))
}

fn is_populated(structure: &[u8]) -> bool {
    word(structure, SIZE).is_some_and(|size| size != 0)
}

fn described(structures: &[Vec<u8>]) -> String {
    let populated = structures.iter().filter(|one| is_populated(one));
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

/// Returns the names of the populated slots with those of their banks, in order; `None` without a name.
fn slots(structures: &[Vec<u8>]) -> Option<String> {
    let populated = structures.iter().filter(|one| is_populated(one));
    let mut names: Vec<String> = populated
        .filter_map(|one| {
            let slot = name(one, SLOT)?;
            Some(match name(one, BANK) {
                Some(bank) => format!("{slot} ({bank})"),
                None => slot,
            })
        })
        .collect();
    names.sort_unstable();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the text whose number is at an offset of the formatted part (DSP0134, section 6.1.3). `None` without such a text.
fn name(structure: &[u8], offset: usize) -> Option<String> {
    let length = usize::from(*structure.get(LENGTH)?);
    let number = usize::from(*structure.get(..length)?.get(offset)?);
    let mut texts = structure.get(length..)?.split(|octet| *octet == 0);
    let text = String::from_utf8_lossy(texts.nth(number.checked_sub(1)?)?);
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns a word. `None` if the structure, whose length is its second octet, is shorter: old firmware lacks fields.
fn word(octets: &[u8], offset: usize) -> Option<u16> {
    let length = usize::from(*octets.get(LENGTH)?).min(octets.len());
    let field = octets.get(..length)?.get(offset..)?.first_chunk()?;
    Some(u16::from_le_bytes(*field))
}

#[cfg(test)]
mod tests {
    use super::super::setting::UNKNOWN;
    use super::*;
    use crate::tests::Machine;

    fn module(size: u16, speed: u16) -> Vec<u8> {
        let mut octets = vec![0; 0x28];
        octets[0] = 17;
        octets[LENGTH] = 0x28;
        octets[SIZE..SIZE + 2].copy_from_slice(&size.to_le_bytes());
        octets[CONFIGURED_SPEED..CONFIGURED_SPEED + 2].copy_from_slice(&speed.to_le_bytes());
        octets
    }

    #[test]
    fn populated_slots_are_counted_and_short_structures_have_no_speed() {
        let all = [module(16384, 3200), module(0, 0), module(0x7fff, 3200)];
        assert_eq!(described(&all), "2 of 3 slots populated, 3200 MT/s");
        let mut old = module(4096, 3200);
        old[LENGTH] = 0x15;
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
        let values = |machine: &Machine| memory(machine.root()).map(|(_, setting)| setting.value);
        assert_eq!(values(&machine), ["1 of 1 slots populated", UNKNOWN]);
        assert_eq!(values(&Machine::default()), [UNKNOWN; 2]);
    }

    #[test]
    fn populated_slots_have_the_names_of_the_firmware() {
        let named = |size: u16, numbers: [u8; 2], texts: &str| {
            let mut octets = module(size, 3200);
            octets[SLOT..=BANK].copy_from_slice(&numbers);
            octets.extend(texts.as_bytes());
            octets
        };
        let all = [
            named(16384, [1, 2], "DIMM_B1\0CHANNEL B\0\0"),
            named(16384, [2, 1], "CHANNEL A\0DIMM_A1 \0\0"),
            named(0, [1, 2], "DIMM_C1\0CHANNEL C\0\0"),
            // Without the name of a bank, and with numbers of no text.
            named(16384, [1, 0], "DIMM_D1\0\0"),
            named(16384, [9, 1], "CHANNEL E\0\0"),
        ];
        let wanted = "DIMM_A1 (CHANNEL A), DIMM_B1 (CHANNEL B), DIMM_D1";
        assert_eq!(slots(&all).as_deref(), Some(wanted));
        assert_eq!(slots(&[vec![17, 0x28], Vec::new()]), None);
    }
}
