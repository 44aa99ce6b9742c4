// SPDX-License-Identifier: Apache-2.0
//! Checks of studies of topologies: invalid combinations, and keys that only the standalone quietwire switch supports.

use std::path::Path;

use quietwire_base::Idle;
use quietwire_lab::topology::Graph;
use quietwire_lab::up::check_configurations;
use quietwire_switch::config::rules::{RULES_MAX, RuleFile};
use quietwire_tester::Directions;

use super::super::limits::{Checked, fault};
use super::super::locate::At;
use super::super::locate::At::{Index, Key};
use super::super::study_file::{Case, StudyFile};
use super::ring_sizes::rings;

/// Message for keys and methods that require the standalone quietwire switch.
const STANDALONE: &str = "this requires the standalone quietwire switch (set switch = \"quietwire\", topology = \"vNet1\" and link = \"memif\" in all cases)";

/// Checks the device of every case, and keys that it does not support.
pub(super) fn topologies(file: &StudyFile) -> Checked {
    rings(&file.device)?;
    for (index, case) in file.cases.iter().enumerate() {
        let graph = file.device_of(case).graph();
        if let Ok(graph) = &graph {
            chains(file, graph)?;
        }
        if let Err(error) = graph.and_then(|graph| check_configurations(&graph)) {
            let message = error.to_string();
            return if case.has_own_device() {
                fault(&[Key("case"), Index(index)], message)
            } else {
                fault(&[Key("device")], message)
            };
        }
        rules(file, case, index)?;
        cards(file, case, index)?;
    }
    standalone_only(file)
}

/// Refuses traffic that several chains do not support: that of one port, and described frames if chains have routers, which require the
/// addresses of their own chain.
fn chains(file: &StudyFile, graph: &Graph) -> Checked {
    if graph.chains.len() < 2 {
        return Ok(());
    }
    if file.traffic.directions != Directions::Both {
        return fault(
            &[Key("traffic"), Key("directions")],
            "with one direction, only the first chain has frames (use one chain, or both directions)",
        );
    }
    let routes = graph.elements.iter().any(|one| one.program.routes());
    if file.traffic.frames.is_none() || !routes {
        return Ok(());
    }
    fault(
        &[Key("traffic"), Key("frames")],
        "described frames have the addresses of the first chain, but other chains have routers too (use one chain, or leave [traffic.frames] out)",
    )
}

/// Parses firewall rules now, before the firewall starts.
fn rules(file: &StudyFile, case: &Case, index: usize) -> Checked {
    let (count, rules) = match case.rule_count {
        Some(count) => (Some(count), &case.rules),
        None => (file.device.rule_count, &file.device.rules),
    };
    let is_own = case.rule_count.is_some();
    if count.is_some() && rules.is_some() {
        return fault(
            &own(is_own, index, "rule-count"),
            "rule-count and rules exclude each other (remove one)",
        );
    }
    if let Some(count) = count.filter(|count| *count as usize > RULES_MAX) {
        return fault(
            &own(is_own, index, "rule-count"),
            format!("{count} rules are too many (maximum: {RULES_MAX})"),
        );
    }
    let device = file.device_of(case);
    let Some(text) = device.rules.filter(|_| device.rule_count.is_none()) else {
        return Ok(());
    };
    RuleFile::parse(Path::new("rules"), &text).map_or_else(
        |error| {
            fault(
                &own(case.rules.is_some(), index, "rules"),
                error.to_string(),
            )
        },
        |_| Ok(()),
    )
}

/// Checks that the network cards of the device and of the tester match one to one.
fn cards(file: &StudyFile, case: &Case, index: usize) -> Checked {
    let device = file.device_of(case);
    let (own_cards, testers) = (device.ports.len(), file.tester.ports.len());
    if own_cards == 0 || own_cards == testers {
        return Ok(());
    }
    fault(
        &own(case.ports.is_some(), index, "ports"),
        format!(
            "the device has {own_cards} network cards, but the tester has {testers} (list in ports of [tester] the cards that are cabled to them)"
        ),
    )
}

/// Returns where a key of a case's device is set.
fn own(is_in_case: bool, index: usize, key: &'static str) -> Vec<At> {
    match is_in_case {
        true => vec![Key("case"), Index(index), Key(key)],
        false => vec![Key("device"), Key(key)],
    }
}

/// Refuses keys and methods that not every device supports.
fn standalone_only(file: &StudyFile) -> Checked {
    if file.device.max_entries.is_some() {
        return fault(&[Key("device"), Key("max-entries")], STANDALONE);
    }
    if file.device.idle != Idle::default() {
        return fault(&[Key("device"), Key("idle")], STANDALONE);
    }
    if file.neighbours.network_pps.is_some() {
        return fault(&[Key("neighbours"), Key("network-pps")], STANDALONE);
    }
    let mut methods = file.methods().into_iter();
    match methods.find(|method| method.requires_standalone_switch()) {
        Some(method) => fault(&[Key(method.section())], STANDALONE),
        None => Ok(()),
    }
}
