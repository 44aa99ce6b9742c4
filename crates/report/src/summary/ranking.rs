// SPDX-License-Identifier: Apache-2.0
//! Rankings of switches by the rate of a goal.
//!
//! A rate that the tester limited is a lower bound: the switch may forward more than any other. It has no rank, and neither has a switch
//! without a rate.

use quietwire_study::{Case, NeighboursIn, Program, StudyFile, Switch};
use serde::Serialize;

use super::case::CaseSummary;
use super::cycles::{CpuRate, CyclesPerFrame};
use super::limit::Limiter;
use super::spread::Spread;

/// Ranking of comparable cases by the rate of one goal: those with the same topology, kinds of links and traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranking {
    /// Name of the goal.
    pub goal: String,
    /// Topology, such as `vNet1`.
    pub topology: String,
    /// Kinds of the links, such as `memif`.
    pub links: String,
    /// Encapsulation of the frames: `l2` if switches read the Ethernet header only, `ipv4` for routers.
    pub encapsulation: String,
    /// MAC addresses for each sending port.
    pub mac_addresses: u32,
    /// IP destinations for each sending port.
    pub ip_destinations: u32,
    /// Flows for each sending port.
    pub flows: u16,
    /// Cases with a rank, the highest rate first; then the others, in the order of the file.
    pub cases: Vec<RankedCase>,
}

/// A case of a ranking.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankedCase {
    /// Its name.
    pub name: String,
    /// Rank, from 1. None if the rate is a lower bound, or if there is none.
    pub rank: Option<usize>,
    /// Rate of the goal, frames per second; none if no rate held or none was found.
    pub rate_pps: Option<Spread>,
    /// True if the rate is a lower bound.
    pub is_at_least: bool,
    /// The part that limited the rate.
    pub limited_by: Option<Limiter>,
    /// Cost of a frame by the device's own account, if it has one.
    pub cycles: Option<CyclesPerFrame>,
    /// Work that the account includes, as a clause. None without an account.
    pub cycles_include: Option<String>,
    /// Why the device has no account of its own, as a clause. None if it has one.
    pub cycles_unavailable: Option<String>,
    /// Cost of a frame by the measure that is the same for all devices.
    pub cpu_cycles: Option<CyclesPerFrame>,
    /// Frames forwarded per second of CPU time, which follows from the same measure.
    pub cpu_rate: Option<CpuRate>,
}

/// Returns the rankings of a study's cases: of each group of comparable cases with at least two switches, one for each goal.
pub(super) fn of_cases(file: &StudyFile, cases: &[CaseSummary]) -> Vec<Ranking> {
    let groups = groups(file, cases);
    let goals = cases.first().map_or(0, |case| case.goals.len());
    let rankings = groups.iter().flat_map(|group| {
        let of_goal = |goal| ranking(file, group, goal);
        (0..goals).filter_map(of_goal).collect::<Vec<_>>()
    });
    rankings.collect()
}

/// Comparable cases.
struct Group<'a> {
    first: &'a Case,
    links: String,
    cases: Vec<&'a CaseSummary>,
    /// Their switches.
    switches: Vec<Switch>,
}

/// Returns the groups of comparable cases with at least two switches, in the order of the file.
fn groups<'a>(file: &'a StudyFile, cases: &'a [CaseSummary]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let is_alone = |case: &&Case| case.neighbours == NeighboursIn::None && case.tenants.is_none();
    for case in file.cases.iter().filter(is_alone) {
        let device = file.device_of(case);
        let summary = cases.iter().find(|summary| summary.name == case.name);
        let (Some(summary), Some(links)) = (summary, device.links()) else {
            continue;
        };
        let switch = device.switch;
        let known = groups
            .iter_mut()
            .find(|group| group.links == links && are_comparable(file, group.first, case));
        match known {
            Some(group) => {
                group.cases.push(summary);
                group.switches.push(switch);
            }
            None => groups.push(Group {
                first: case,
                links,
                cases: vec![summary],
                switches: vec![switch],
            }),
        }
    }
    groups.retain(|group| {
        let first = group.switches.first();
        group.switches.iter().any(|switch| Some(switch) != first)
    });
    groups
}

/// Returns true if the devices of two cases have the same place and the same work, apart from their links.
fn are_comparable(file: &StudyFile, one: &Case, other: &Case) -> bool {
    let (device, others) = (file.device_of(one), file.device_of(other));
    device.topology == others.topology
        && device.encapsulation() == others.encapsulation()
        && device.vnf == others.vnf
        && device.chains == others.chains
        && device.length == others.length
        && device.place == others.place
        && one.isolation() == other.isolation()
        && file.traffic_of(one) == file.traffic_of(other)
}

/// Returns the ranking by the goal at an index; none if no case has a rate.
fn ranking(file: &StudyFile, group: &Group<'_>, goal: usize) -> Option<Ranking> {
    let cases = &group.cases;
    let name = cases.first()?.goals.get(goal)?.name.clone();
    let all = cases.iter().zip(&group.switches);
    let all = all.filter_map(|(case, switch)| row(case, *switch, goal));
    let (mut ranked, others): (Vec<RankedCase>, Vec<RankedCase>) =
        all.partition(|row| row.rate_pps.is_some() && !row.is_at_least);
    ranked.sort_by(|one, other| median(other).total_cmp(&median(one)));
    let mut before: Option<(usize, f64)> = None;
    for (index, row) in ranked.iter_mut().enumerate() {
        let rate_pps = median(row);
        // Equal rates have the same rank.
        let rank = before
            .filter(|(_, rate)| *rate == rate_pps)
            .map_or(index.saturating_add(1), |(rank, _)| rank);
        row.rank = Some(rank);
        before = Some((rank, rate_pps));
    }
    ranked.extend(others);
    if ranked.iter().all(|row| row.rate_pps.is_none()) {
        return None;
    }
    let device = file.device_of(group.first);
    let traffic = file.traffic_of(group.first);
    Some(Ranking {
        goal: name,
        topology: device.topology.0.name.to_owned(),
        links: group.links.clone(),
        encapsulation: device.encapsulation().to_string(),
        mac_addresses: traffic.mac_addresses,
        ip_destinations: traffic.ip_destinations,
        flows: traffic.flows,
        cases: ranked,
    })
}

fn median(row: &RankedCase) -> f64 {
    row.rate_pps.as_ref().map_or(0.0, |rate| rate.median)
}

/// Returns the work that a device's own account includes, as a clause.
fn account(switch: Switch) -> &'static str {
    const REPORTED: &str = "the cycles that the device reports";
    let program = match switch {
        Switch::Program(program) => program,
        Switch::Other => return REPORTED,
    };
    match program {
        Program::TestpmdIo | Program::TestpmdMac | Program::TestpmdMacswap => {
            "calls that receive, forward and send frames, without empty polls and without the loop around them"
        }
        Program::OvsDpdk | Program::OvsDpdkRouter => {
            "turns of the forwarding threads that process frames, without those that find none"
        }
        Program::Vpp => "nodes of the graph, without the work between them",
        Program::Tester
        | Program::Quietwire
        | Program::Firewall
        | Program::QuietwireRouter
        | Program::Nat => "all work on bursts with frames, without empty polls",
        Program::L2fwd
        | Program::L3fwd
        | Program::LinuxBridge
        | Program::LinuxRouting
        | Program::OvsNetdev
        | Program::OwnImage => REPORTED,
    }
}

/// Returns why a device has no account of its own cycles, as a clause.
fn no_account(switch: Switch) -> &'static str {
    let program = match switch {
        Switch::Program(program) => program,
        Switch::Other => return "the lab does not start this device",
    };
    match program {
        Program::TestpmdIo | Program::TestpmdMac | Program::TestpmdMacswap => {
            "testpmd printed no cycles in a trial at the highest load"
        }
        Program::L2fwd | Program::L3fwd => "the program does not count its cycles",
        Program::LinuxBridge | Program::LinuxRouting => {
            "the kernel does not count the cycles of its frames"
        }
        Program::OvsNetdev => "Open vSwitch without DPDK does not count its cycles",
        Program::Tester
        | Program::Quietwire
        | Program::Firewall
        | Program::QuietwireRouter
        | Program::Nat
        | Program::OvsDpdk
        | Program::OvsDpdkRouter
        | Program::Vpp
        | Program::OwnImage => "no trial at the highest load has its counts",
    }
}

fn row(case: &CaseSummary, switch: Switch, goal: usize) -> Option<RankedCase> {
    let found = case.goals.get(goal)?;
    let limit = case.limits.get(goal).and_then(Option::as_ref);
    let limited_by = limit.map(|limit| limit.by);
    Some(RankedCase {
        name: case.name.clone(),
        rank: None,
        rate_pps: found.rate_pps.clone().filter(|rate| rate.median > 0.0),
        is_at_least: found.is_lower_limit_only || limited_by == Some(Limiter::Tester),
        limited_by,
        cycles: case.own_cycles.clone(),
        cycles_include: case.own_cycles.as_ref().map(|_| account(switch).to_owned()),
        cycles_unavailable: match case.own_cycles {
            Some(_) => None,
            None => Some(no_account(switch).to_owned()),
        },
        cpu_cycles: case.cpu_cycles.clone(),
        cpu_rate: case.cpu_rate.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use quietwire_study::StudyResults;
    use quietwire_study::simulated::SimulatedBench;

    use super::super::{CycleSource, Limit, Summary};
    use super::*;
    use crate::tests::results_of;

    const CASES: [(&str, &str, &str); 6] = [
        ("ours", "quietwire", "memif"),
        ("io", "testpmd-io", "memif"),
        ("l2", "l2fwd", "memif"),
        ("other", "vpp", "memif"),
        ("veth", "quietwire", "veth"),
        ("kernel", "linux-bridge", "veth"),
    ];

    fn text() -> String {
        let cases = CASES.map(|(name, switch, link)| {
            format!("[[case]]\nname = \"{name}\"\nswitch = \"{switch}\"\nlink = \"{link}\"\n")
        });
        format!(
            r#"
name = "ranked"
title = "A study with ranks"
rounds = 1
{}
[trials]
duration-s = 1
[search]
start-rate-percent = 20
start-step-percent = 20
resolution-percent = 20
best-of = 2
goal = [{{ name = "PDR", loss-ratio = 0.005 }}]
{}"#,
            include_str!("../../../study/src/tests/device.toml"),
            cases.concat()
        )
    }

    fn run(text: &str) -> StudyResults {
        let mut bench = SimulatedBench::new(3, 0);
        bench.invalid_ratio = 0.0;
        results_of(text, bench, usize::MAX)
    }

    /// Returns a study of simulated trials, with these rates in place of those found: a rate, and whether it is a lower bound.
    fn ranked(rates: [Option<(f64, bool)>; 6]) -> Vec<Ranking> {
        let text = text();
        let file = StudyFile::parse(&text, Path::new("study.toml")).unwrap();
        let results = run(&text);
        let mut cases = Summary::of(&results).unwrap().sizes.remove(0).cases;
        assert_eq!(cases.len(), CASES.len());
        for (case, rate) in cases.iter_mut().zip(rates) {
            let goal = &mut case.goals[0];
            goal.rate_pps = rate.and_then(|(rate_pps, _)| Spread::of(vec![rate_pps]));
            goal.is_lower_limit_only = rate.is_some_and(|(_, is_at_least)| is_at_least);
            case.limits = vec![rate.map(|(_, is_at_least)| Limit {
                by: if is_at_least {
                    Limiter::Tester
                } else {
                    Limiter::Device
                },
                device_idle_ratio: None,
                tester_idle_ratio: None,
            })];
        }
        of_cases(&file, &cases)
    }

    fn order(ranking: &Ranking) -> Vec<(&str, Option<usize>)> {
        let cases = ranking.cases.iter();
        cases.map(|case| (&*case.name, case.rank)).collect()
    }

    #[test]
    fn a_rate_that_the_tester_limited_is_neither_above_nor_below_another() {
        let exact = |rate_pps| Some((rate_pps, false));
        let at_least = |rate_pps| Some((rate_pps, true));
        let rankings = ranked([
            at_least(5e6),
            exact(4e6),
            at_least(9e6),
            exact(6e6),
            exact(1e6),
            exact(1e6),
        ]);
        let memif = &rankings[0];
        assert_eq!((&*memif.goal, &*memif.links), ("PDR", "memif"));
        assert_eq!((&*memif.topology, &*memif.encapsulation), ("vNet1", "l2"));
        assert_eq!(
            order(memif),
            [
                ("other", Some(1)),
                ("io", Some(2)),
                // In the order of the file, not of the rates.
                ("ours", None),
                ("l2", None),
            ]
        );
        let bounds: Vec<bool> = memif.cases.iter().map(|case| case.is_at_least).collect();
        assert_eq!(bounds, [false, false, true, true]);
        // Over other links, they are ranked by themselves. Equal rates have the same rank.
        let veth = &rankings[1];
        assert_eq!(&*veth.links, "veth");
        assert_eq!(order(veth), [("veth", Some(1)), ("kernel", Some(1))]);
        assert_eq!(rankings.len(), 2);
    }

    #[test]
    fn switches_with_other_work_are_not_compared() {
        let text = text().replace("\"testpmd-io\"", "\"testpmd-io\"\nmac-addresses = 1000");
        let size = Summary::of(&run(&text)).unwrap().sizes.remove(0);
        let memif = &size.rankings[0];
        let mut names: Vec<&str> = memif.cases.iter().map(|case| &*case.name).collect();
        names.sort_unstable();
        assert_eq!(names, ["l2", "other", "ours"]);
        assert_eq!(memif.mac_addresses, 1);
    }

    #[test]
    fn a_case_without_a_rate_has_no_rank() {
        let exact = |rate_pps| Some((rate_pps, false));
        let rankings = ranked([exact(1e6), None, exact(0.0), exact(2e6), None, None]);
        // No case over veth has a rate.
        assert_eq!(rankings.len(), 1);
        assert_eq!(
            order(&rankings[0]),
            [
                ("other", Some(1)),
                ("ours", Some(2)),
                ("io", None),
                ("l2", None)
            ]
        );
    }

    #[test]
    fn a_study_of_one_switch_has_no_ranking() {
        let text = text().replace("\"testpmd-io\"", "\"quietwire\"\nmode = \"bridge\"");
        let begin = text.find("[[case]]\nname = \"l2\"").unwrap();
        let text = text[..begin].replace("[[case]]\n", "[[case]]\nisolation = \"none\"\n");
        let results = run(&text);
        assert!(Summary::of(&results).unwrap().sizes[0].rankings.is_empty());
    }

    #[test]
    fn the_own_account_and_the_one_measure_are_beside_each_other() {
        let text = text();
        let mut results = run(&text);
        for step in &mut results.steps {
            // Ours counts 100 cycles for each frame, testpmd 60, VPP 80 and 30 of its input node, and the others none.
            let count = |cycles, input_cycles| quietwire_study::CycleCount {
                cycles,
                frames: 2000,
                input_cycles,
                ..quietwire_study::CycleCount::default()
            };
            let counted = match &*step.case_name {
                "ours" => Some(count(200_000, None)),
                "io" => Some(count(120_000, None)),
                "other" => Some(count(160_000, Some(60_000))),
                _ => None,
            };
            for trial in &mut step.trials {
                trial.result.lost_frames = trial.result.lost_frames.max(1);
                trial.activity.elements = vec![quietwire_study::ElementActivity {
                    name: "S".to_owned(),
                    role: quietwire_study::Role::Switch,
                    function: None,
                    counted: counted.clone(),
                    cpu_time_s: 1.0,
                    is_kernels: true,
                    kernel_cpus: Some(1),
                    tsc_hz: 2_000_000_000,
                    own_view: None,
                    own_view_unavailable: None,
                }];
            }
        }
        let size = Summary::of(&results).unwrap().sizes.remove(0);
        let row = |name: &str| {
            let mut rows = size.rankings[0].cases.iter();
            rows.find(|row| row.name == name).unwrap()
        };
        assert_eq!(row("ours").cycles.as_ref().unwrap().cycles.median, 100.0);
        let of_vpp = row("other").cycles.as_ref().unwrap();
        assert_eq!(of_vpp.cycle_source, CycleSource::WithoutInput);
        assert_eq!(of_vpp.cycles.median, 80.0);
        assert_eq!(of_vpp.with_input.as_ref().unwrap().median, 110.0);
        let cost = "80 without the input node, ≤\u{202f}110 with it and its empty polls";
        assert_eq!(of_vpp.text(), cost);
        // The cost of the case is complete.
        let mut cases = size.cases.iter();
        let case = cases.find(|case| case.name == "other").unwrap();
        let complete = case.cycles.as_ref().unwrap().cycle_source;
        assert_eq!(complete, CycleSource::CpuTime);
        let of_testpmd = row("io").cycles.as_ref().unwrap();
        assert_eq!(of_testpmd.text(), "60");
        assert_eq!(row("l2").cycles, None);
        let reason = |name| row(name).cycles_unavailable.as_deref();
        assert_eq!((reason("ours"), reason("other")), (None, None));
        let include = |name| row(name).cycles_include.as_deref();
        assert_eq!(include("l2"), None);
        assert!(include("io").unwrap().ends_with("the loop around them"));
        let sentences = crate::page::ranking::accounts(&size.rankings[0]);
        assert_eq!(sentences.len(), 2, "{sentences:?}");
        let (known, unknown) = (&sentences[0], &sentences[1]);
        let of_testpmd = "io: calls that receive, forward and send frames, without empty polls";
        assert!(known.contains(of_testpmd), "{known}");
        assert!(
            unknown.contains("l2 (the program does not count"),
            "{unknown}"
        );
        let silent = no_account(Switch::Program(Program::TestpmdMac));
        assert!(silent.starts_with("testpmd printed no cycles"), "{silent}");
        for name in ["ours", "io", "other"] {
            let measured = row(name).cpu_cycles.as_ref().unwrap();
            assert_eq!(measured.cycle_source, CycleSource::CpuTime);
            // At 2 GHz, and the full share of a CPU.
            let rate = row(name).cpu_rate.as_ref().unwrap();
            assert!(!rate.is_at_least);
            let product = rate.rate_pps.median * measured.cycles.median;
            assert!((product / 2e9 - 1.0).abs() < 0.01, "{rate:?} {measured:?}");
        }
        let page = crate::html(&results).unwrap();
        assert!(page.contains(cost) && page.contains("Own account unknown: "));
        assert!(page.contains("Own accounts: "));
        assert!(page.contains("<h2>Ranking</h2>") && page.contains("PDR over memif"));
        let summary = Summary::of(&results).unwrap();
        let row = &summary.sizes[0].rankings[0].cases[0];
        let [rank, name, rate, ..] = crate::page::ranking::cells(row);
        let line = format!("| {rank} | {name} | {rate} |").replace(crate::format::THIN, " ");
        let markdown = crate::markdown(&summary);
        assert!(markdown.contains("### Ranking: PDR over memif, vNet1, l2\n"));
        assert!(markdown.contains(&line), "{markdown}");
        assert!(markdown.contains("Own accounts: "));
        assert!(markdown.contains("Own account unknown: "));
        let text = crate::text_table(&summary, None);
        assert!(text.contains("Ranking: PDR over memif, vNet1, l2\n"));
        assert!(text.contains(known) && text.contains(unknown), "{text}");
        assert!(text.contains("Cycles per frame, CPU time"));
    }
}
