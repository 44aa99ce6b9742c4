// SPDX-License-Identifier: Apache-2.0
//! Checks of a study file beyond its syntax.

mod application;
mod external;
mod objectives;
mod published;
mod ring_sizes;
mod tenants;
mod topology;

use std::collections::HashSet;

use quietwire_host::cpu::CpuList;
use quietwire_lab::{
    IsolationCase, IsolationPart, NeighbourKind, isolation_cases, neighbour_kinds,
};
use quietwire_tester::{DESTINATIONS_MAX, MAC_ADDRESSES_MAX, OFFERED_RATE_PPS_MAX};

use super::connections;
use super::limits::{Checked, REPEATS_MAX, between, duration, fault, name, pause};
use super::locate::At::{Index, Key};
use super::locate::{At, LocatedFault};
use super::study_file::{Case, StudyFile, Traffic};
use super::trials::Trials;
use super::{Device, FrameSize, Link, Mode, NeighboursIn, Switch};
use ring_sizes::rings;

/// Maximum number of workers of a stressor.
const NEIGHBOURS_MAX: u32 = 1024;

/// Returns the first fault, in the order of the file's sections.
pub(super) fn first_fault(file: &StudyFile) -> Option<LocatedFault> {
    whole(file).err()
}

fn whole(file: &StudyFile) -> Checked {
    name(&file.name, &[Key("name")])?;
    between(file.rounds, 1, REPEATS_MAX, &[Key("rounds")])?;
    tenants::tenants(file)?;
    device(file)?;
    one_tester_cpu(file)?;
    traffic(file)?;
    trials(&file.trials)?;
    if let Some(described) = &file.connections {
        connections::check(described)?;
    }
    let methods = file.methods();
    for method in &methods {
        method.check(&file.surroundings(None))?;
    }
    application::application(file)?;
    if methods.is_empty() {
        return fault(
            &[],
            "the study measures nothing (add a section such as [search], [sweep] or [latency])",
        );
    }
    cases(file)?;
    objectives::objectives(file)?;
    published::published(file)
}

fn device(file: &StudyFile) -> Checked {
    let device = &file.device;
    let has_cards = |case: &Case| !file.device_of(case).ports.is_empty();
    let is_of_lab = device.switch != Switch::Other;
    if device.card_driver.is_some() && !(is_of_lab && file.cases.iter().any(has_cards)) {
        return fault(
            &[Key("device"), Key("card-driver")],
            "the lab starts no device with network cards (add ports to [device], or remove this key)",
        );
    }
    if device.switch == Switch::Other {
        return external::external(file);
    }
    external::no_external_keys(file)?;
    if device.link == Some(Link::Other) {
        return fault(
            &[Key("device"), Key("link")],
            "\"other\" requires switch = \"other\" (choose another link)",
        );
    }
    if file.runs_in_topologies() {
        return topology::topologies(file);
    }
    if let Some(entries) = device.max_entries {
        let path = [Key("device"), Key("max-entries")];
        between(entries, 1, MAC_ADDRESSES_MAX, &path)?;
        if device.mode != Mode::Bridge {
            return fault(
                &path,
                "this key requires mode = \"bridge\": other modes have no address table",
            );
        }
    }
    let roles = [
        ("forwarding-cpus", &device.forwarding_cpus),
        ("service-cpus", &device.service_cpus),
        ("control-cpus", &device.control_cpus),
    ];
    for (key, cpus) in roles {
        if cpus.is_empty() {
            return fault(
                &[Key("device"), Key(key)],
                "no CPU is given (write a list such as \"1\" or \"3,4,8-11\")",
            );
        }
    }
    for (key, cpus) in &roles[1..] {
        forwarding_only(device, cpus, &[Key("device"), Key(key)])?;
    }
    rings(device)
}

/// Checks that forwarding CPUs have no other role. Other CPUs may share roles, because machines with two CPUs have no choice.
fn forwarding_only(device: &Device, cpus: &CpuList, path: &[At]) -> Checked {
    let shared = cpus.intersection(&device.forwarding_cpus);
    if shared.is_empty() {
        return Ok(());
    }
    fault(
        path,
        format!(
            "CPU {shared} is also one of the forwarding-cpus, which must have no other role (give this role another CPU)"
        ),
    )
}

fn one_tester_cpu(file: &StudyFile) -> Checked {
    let path = [Key("tester"), Key("cpu")];
    if file.tester.cpu.len() != 1 {
        return fault(
            &path,
            format!(
                "'{}' must be a single CPU that is not one of the forwarding-cpus",
                file.tester.cpu
            ),
        );
    }
    forwarding_only(&file.device, &file.tester.cpu, &path)
}

fn traffic(file: &StudyFile) -> Checked {
    let sizes = &file.traffic.frame_sizes;
    let path = [Key("traffic"), Key("frame-sizes")];
    if sizes.is_empty() {
        return fault(&path, "no frame size is given (write [64], for example)");
    }
    for (index, size) in sizes.iter().enumerate() {
        if sizes.iter().take(index).any(|other| other == size) {
            return fault(
                &[path[0], path[1], Index(index)],
                format!("{size} is given twice (remove one)"),
            );
        }
    }
    if file.traffic.flows == 0 {
        return fault(
            &[Key("traffic"), Key("flows")],
            "the number of flows is 0 (write 1 to 65535)",
        );
    }
    between(
        file.traffic.mac_addresses,
        1,
        MAC_ADDRESSES_MAX,
        &[Key("traffic"), Key("mac-addresses")],
    )?;
    between(
        file.traffic.ip_destinations,
        1,
        DESTINATIONS_MAX,
        &[Key("traffic"), Key("ip-destinations")],
    )?;
    frames(&file.traffic)
}

/// Checks that `[traffic.frames]` does not repeat settings of the study.
fn frames(traffic: &Traffic) -> Checked {
    let Some(frames) = &traffic.frames else {
        return Ok(());
    };
    let path = |key| [Key("traffic"), Key("frames"), Key(key)];
    if let Some(found) = frames.first_fault() {
        let path = [&[Key("traffic"), Key("frames")][..], &found.path].concat();
        return fault(&path, found.message);
    }
    let elsewhere = [
        (
            "sizes",
            frames.sizes.is_some(),
            "use frame-sizes in [traffic] instead",
        ),
        (
            "directions",
            frames.directions.is_some(),
            "use directions in [traffic] instead",
        ),
        (
            "burst",
            frames.has_rate(),
            "the study sets the rate (remove gap-us)",
        ),
        (
            "replay",
            frames.replay.is_some(),
            "frames of a capture file are not supported in a study, because it cannot assign them to trials (remove this key)",
        ),
    ];
    for (key, is_reported, reported) in elsewhere {
        if is_reported {
            return fault(&path(key), reported);
        }
    }
    if traffic.flows != 1 || traffic.mac_addresses != 1 || traffic.ip_destinations != 1 {
        return fault(
            &[Key("traffic"), Key("frames")],
            "flows, mac-addresses and ip-destinations cannot be combined with it (set flows and addresses here)",
        );
    }
    let needed = frames.frame_size_min();
    let smallest = |size: &FrameSize| size.0.smallest() < needed;
    if let Some(index) = traffic.frame_sizes.iter().position(smallest) {
        return fault(
            &[Key("traffic"), Key("frame-sizes"), Index(index)],
            format!(
                "the headers and the tester's signature require {needed} octets with FCS (use a larger size)"
            ),
        );
    }
    Ok(())
}

fn trials(trials: &Trials) -> Checked {
    duration(trials.duration_s, &[Key("trials"), Key("duration-s")])?;
    pause(trials.warm_up_s, &[Key("trials"), Key("warm-up-s")])?;
    pause(trials.drain_s, &[Key("trials"), Key("drain-s")])?;
    between(
        trials.invalid_repeats,
        0,
        100,
        &[Key("trials"), Key("invalid-repeats")],
    )
}

fn cases(file: &StudyFile) -> Checked {
    if file.cases.is_empty() {
        return fault(
            &[Key("case")],
            "no case is given (add a [[case]] with name, neighbours and isolation)",
        );
    }
    let mut names = HashSet::new();
    for (index, case) in file.cases.iter().enumerate() {
        let at = |key| [Key("case"), Index(index), Key(key)];
        name(&case.name, &at("name"))?;
        if !names.insert(&case.name) {
            return fault(
                &at("name"),
                format!("two cases have the name '{}' (rename one)", case.name),
            );
        }
        isolation(file, case, at)?;
        case_traffic(file, case, index)?;
    }
    stressors(file)
}

/// Checks the isolation of a case.
fn isolation(file: &StudyFile, case: &Case, at: impl Fn(&'static str) -> [At; 3]) -> Checked {
    let names = || {
        let all: Vec<&str> = isolation_cases().iter().map(|known| known.name).collect();
        all.join(", ")
    };
    let Some(name) = &case.isolation else {
        // Elements of topologies always keep to their CPUs, and a device outside the lab cannot be isolated.
        let is_optional = case.earlier_isolation.is_some()
            || file.runs_in_topologies()
            || file.device.switch == Switch::Other;
        return match is_optional {
            true => Ok(()),
            false => fault(
                &at("name"),
                format!(
                    "this case has no isolation (add isolation = \"none\", or another of {})",
                    names()
                ),
            ),
        };
    };
    if IsolationCase::named(name).is_none() {
        return fault(
            &at("isolation"),
            format!("unknown isolation case '{name}' (available: {})", names()),
        );
    }
    if case.neighbours == NeighboursIn::Siblings
        && case
            .isolation()
            .is_some_and(|case| case.has(IsolationPart::IdleSiblings))
    {
        return fault(
            &at("neighbours"),
            format!(
                "isolation = \"{name}\" keeps the sibling threads of the forwarding cores idle (place the neighbours elsewhere)"
            ),
        );
    }
    Ok(())
}

/// Checks the traffic keys of a case.
fn case_traffic(file: &StudyFile, case: &Case, index: usize) -> Checked {
    let numbers = [
        ("flows", case.flows.map(u32::from), u32::from(u16::MAX)),
        ("mac-addresses", case.mac_addresses, MAC_ADDRESSES_MAX),
        ("ip-destinations", case.ip_destinations, DESTINATIONS_MAX),
    ];
    for (key, number, most) in numbers {
        let Some(number) = number else { continue };
        let path = [Key("case"), Index(index), Key(key)];
        between(number, 1, most, &path)?;
        if file.traffic.frames.is_some() {
            return fault(
                &path,
                "this key cannot be combined with [traffic.frames], which sets flows and addresses (remove one of them)",
            );
        }
    }
    Ok(())
}

fn stressors(file: &StudyFile) -> Checked {
    let stressors = &file.neighbours.stressors;
    for (index, text) in stressors.iter().enumerate() {
        if !text.starts_with("--") || text.contains(['\0', '\n']) {
            return fault(
                &[Key("neighbours"), Key("stressors"), Index(index)],
                format!("'{text}' is not a stress-ng option (write one such as \"--cpu 4\")"),
            );
        }
    }
    for (index, name) in file.neighbours.kinds.iter().enumerate() {
        kind(name, &[Key("neighbours"), Key("kinds"), Index(index)])?;
    }
    for (index, case) in file.cases.iter().enumerate() {
        let at = |key| [Key("case"), Index(index), Key(key)];
        let Some(kinds) = &case.kinds else { continue };
        if case.neighbours == NeighboursIn::None {
            return fault(&at("kinds"), "this case has no neighbours (remove kinds)");
        }
        for (number, name) in kinds.iter().enumerate() {
            let [case, index, key] = at("kinds");
            kind(name, &[case, index, key, Index(number)])?;
        }
    }
    if let Some(count) = file.neighbours.count {
        between(count, 1, NEIGHBOURS_MAX, &[Key("neighbours"), Key("count")])?;
    }
    if let Some(rate) = file.neighbours.network_pps
        && !(rate > 0.0 && rate <= OFFERED_RATE_PPS_MAX)
    {
        return fault(
            &[Key("neighbours"), Key("network-pps")],
            format!("{rate:e} must be above 0 and at most {OFFERED_RATE_PPS_MAX:e}"),
        );
    }
    let has_none =
        |case: &Case| case.neighbours != NeighboursIn::None && file.neighbours_of(case).is_empty();
    match file.cases.iter().position(has_none) {
        Some(index) => fault(
            &[Key("case"), Index(index), Key("neighbours")],
            "this case has neighbours, but the file describes none (add [neighbours] with kinds = [\"cpu\"], stressors = [\"--cpu 4\"] or network-pps)",
        ),
        _ => Ok(()),
    }
}

fn kind(name: &str, path: &[At]) -> Checked {
    if NeighbourKind::named(name).is_some() {
        return Ok(());
    }
    let all: Vec<&str> = neighbour_kinds().iter().map(|kind| kind.name).collect();
    fault(
        path,
        format!("unknown kind '{name}' (available: {})", all.join(", ")),
    )
}
