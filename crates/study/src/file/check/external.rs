// SPDX-License-Identifier: Apache-2.0
//! Checks of devices that the lab does not start, and of keys that only such devices have.

use super::super::external::port_uri;
use super::super::limits::{Checked, duration, fault};
use super::super::locate::At::{Index, Key};
use super::super::study_file::{Case, StudyFile};

/// Most words of a command, and octets of all.
const WORDS_MAX: usize = 256;
const OCTETS_MAX: usize = 16 << 10;
/// Most ports of the tester: two, and one that observes flooded frames.
const PORTS: usize = 2;
const PORTS_OF_ADDRESSES: usize = 3;

/// Checks a study whose device the lab does not start.
pub(super) fn external(file: &StudyFile) -> Checked {
    not_of_cases(file)?;
    commands(file)?;
    if file.neighbours.network_pps.is_some() {
        return fault(
            &[Key("neighbours"), Key("network-pps")],
            "switch is \"other\" in [device], which has no ports for neighbours (remove this key)",
        );
    }
    ports(file)
}

/// Checks that a device outside the lab is the same in all cases.
fn not_of_cases(file: &StudyFile) -> Checked {
    match file.cases.iter().position(Case::has_own_device) {
        Some(index) => fault(
            &[Key("case"), Index(index)],
            "the device is \"other\" in [device], which the lab does not start, so a case cannot change it (remove this key)",
        ),
        None => Ok(()),
    }
}

fn commands(file: &StudyFile) -> Checked {
    let device = &file.device;
    let both = [
        (
            "prepare",
            &device.prepare,
            "prepare-timeout-s",
            device.prepare_timeout_s,
        ),
        (
            "restore",
            &device.restore,
            "restore-timeout-s",
            device.restore_timeout_s,
        ),
    ];
    for (key, words, timeout_key, timeout_s) in both {
        let path = [Key("device"), Key(key)];
        let is_bad = |word: &String| word.contains('\0');
        if words.first().is_some_and(String::is_empty) || words.iter().any(is_bad) {
            return fault(
                &path,
                "the first word must be a program, and no word may contain NUL",
            );
        }
        let octets: usize = words.iter().map(String::len).sum();
        if words.len() > WORDS_MAX || octets > OCTETS_MAX {
            return fault(
                &path,
                format!(
                    "the command is too long (at most {WORDS_MAX} words and {OCTETS_MAX} octets; write a script)"
                ),
            );
        }
        let Some(timeout_s) = timeout_s else { continue };
        let path = [Key("device"), Key(timeout_key)];
        duration(timeout_s, &path)?;
        if words.is_empty() {
            return fault(
                &path,
                format!("there is no {key} command (add {key}, or remove this key)"),
            );
        }
    }
    Ok(())
}

/// Checks the tester's ports. Without any, the study requires another tester.
fn ports(file: &StudyFile) -> Checked {
    let ports = &file.tester.ports;
    let at = |index| [Key("tester"), Key("ports"), Index(index)];
    for (index, port) in ports.iter().enumerate() {
        if let Err(why) = port_uri(port) {
            return fault(&at(index), why);
        }
        if ports.iter().take(index).any(|other| other == port) {
            return fault(&at(index), format!("{port} is given twice (remove one)"));
        }
    }
    if ports.is_empty() {
        return Ok(());
    }
    let path = [Key("tester"), Key("ports")];
    let given = ports.len();
    if file.measures_addresses() && given != PORTS_OF_ADDRESSES {
        return fault(
            &path,
            format!(
                "{given} ports given, but this method requires three: the sender to learned addresses, the owner of the addresses, and an observer of flooded frames"
            ),
        );
    }
    if !file.measures_addresses() && given > PORTS {
        return fault(
            &path,
            format!("{given} ports given, but the tester of such a device has one or two"),
        );
    }
    if file.opens_connections() && given != PORTS {
        return fault(
            &path,
            format!(
                "{given} port given, but connections require two: of the client and of the server"
            ),
        );
    }
    Ok(())
}

/// Checks that a device of the lab has no keys of an external one.
pub(super) fn no_external_keys(file: &StudyFile) -> Checked {
    let device = &file.device;
    let keys = [
        ("prepare", !device.prepare.is_empty()),
        ("prepare-timeout-s", device.prepare_timeout_s.is_some()),
        ("restore", !device.restore.is_empty()),
        ("restore-timeout-s", device.restore_timeout_s.is_some()),
    ];
    match keys.iter().find(|(_, is_given)| *is_given) {
        Some((key, _)) => fault(
            &[Key("device"), Key(key)],
            "this requires switch = \"other\": the lab starts and stops other devices (remove this key)",
        ),
        None => Ok(()),
    }
}
