// SPDX-License-Identifier: Apache-2.0
//! Costs of frames, limits of rates, and places of losses.

use quietwire_study::ElementActivity;
use quietwire_tester::account::Accounted;

use super::{assert_well_formed, checked, checked_whole, whole};
use crate::{CaseSummary, Summary, html, json, text_table};

pub(super) fn count(cycles: u64, frames: u64) -> quietwire_study::CycleCount {
    quietwire_study::CycleCount {
        cycles,
        frames,
        threads: vec![cycles / 4, cycles - cycles / 4],
        bursts: frames / 4,
        input_cycles: None,
    }
}

/// Returns a switch with these counters and half a second of CPU time.
pub(super) fn element(counted: Option<quietwire_study::CycleCount>) -> ElementActivity {
    ElementActivity {
        name: "S".to_owned(),
        role: quietwire_study::Role::Switch,
        function: None,
        counted,
        cpu_time_s: 0.5,
        is_kernels: false,
        kernel_cpus: None,
        tsc_hz: 2_000_000_000,
        own_view: None,
        own_view_unavailable: None,
    }
}

#[test]
fn what_a_frame_cost_is_counted_by_the_switch_or_computed_from_cpu_time() {
    let with = |counted: Option<quietwire_study::CycleCount>| {
        let mut results = whole();
        let trials = results.steps.iter_mut().flat_map(|step| &mut step.trials);
        for trial in trials {
            trial.activity.elements = vec![element(counted.clone())];
        }
        checked(&results)
    };
    let (summary, page) = with(Some(count(5000, 20)));
    let cycles = summary.sizes[0].cases[0].cycles.as_ref().unwrap();
    assert_eq!(
        (&*cycles.element, cycles.cycle_source),
        ("S", crate::CycleSource::Counted)
    );
    assert_eq!(cycles.cycles.median, 250.0);
    // Half a second of CPU time in 1.3 seconds.
    let used = summary.sizes[0].cases[0].sweep[0].device_cpus.as_ref();
    assert_eq!(used.unwrap().median, 0.5 / 1.3);
    let chart = "aria-label=\"CPUs of the device against offered load\"";
    assert!(page.contains(chart));
    assert!(page.contains("Cycles per frame") && page.contains(">250<"));
    assert!(text_table(&summary, None).contains("cycles per frame"));

    let (summary, page) = with(None);
    let cycles = summary.sizes[0].cases[0].cycles.as_ref().unwrap();
    assert_eq!(cycles.cycle_source, crate::CycleSource::CpuTime);
    // Half a second of CPU time, while 6.4 Mpps take longer than that.
    assert!((10.0..1000.0).contains(&cycles.cycles.median), "{cycles:?}");
    assert!(page.contains("from CPU time"));
    // An element that polls and loses nothing may have had idle time.
    let mut results = whole();
    let trials = results.steps.iter_mut().flat_map(|step| &mut step.trials);
    for trial in trials {
        trial.result.lost_frames = 0;
        trial.activity.elements = vec![element(None)];
    }
    let (summary, page) = checked(&results);
    let cycles = summary.sizes[0].cases[0].cycles.as_ref().unwrap();
    assert_eq!(cycles.cycle_source, crate::CycleSource::AtMost);
    assert!(page.contains("≤\u{202f}"));
    let (summary, page) = checked_whole();
    assert_eq!(summary.sizes[0].cases[0].cycles, None);
    assert!(!page.contains("Cycles per frame") && !page.contains(chart));
    assert!(page.contains("aria-label=\"99 % of round trips against offered load\""));
}

#[test]
fn functions_of_a_chain_have_their_cost_beside_that_of_the_switch() {
    use quietwire_study::{FunctionPlace, Program, Role};
    let function = |name: &str, position, program, counted| ElementActivity {
        name: name.to_owned(),
        role: Role::Vnf,
        function: Some(FunctionPlace { position, program }),
        ..element(Some(counted))
    };
    let mut results = whole();
    for trial in results.steps.iter_mut().flat_map(|step| &mut step.trials) {
        trial.result.forwarding_rate_pps = 1000.0;
        trial.request.warm_up_s = 0.5;
        trial.result.elapsed_s = 1.5;
        // Two chains of two functions; 2000 frames passed from end to end.
        trial.activity.elements = vec![
            element(Some(count(600_000, 6000))),
            function("V1.2", 2, Program::Firewall, count(60_000, 1000)),
            function("V1.1", 1, Program::Nat, count(200_000, 1000)),
            function("V2.1", 1, Program::Nat, count(400_000, 1000)),
            function("V2.2", 2, Program::Firewall, count(60_000, 1000)),
            ElementActivity {
                name: "R".to_owned(),
                role: Role::Relay,
                ..element(Some(count(1, 1)))
            },
        ];
    }
    let (summary, page) = checked(&results);
    let costs = &summary.sizes[0].cases[0].functions;
    let figures: Vec<(&str, f64, f64, f64)> = costs
        .iter()
        .map(|cost| {
            let median = |spread: &Option<crate::Spread>| spread.as_ref().unwrap().median;
            (
                cost.function.as_str(),
                cost.cycles.median,
                median(&cost.cycles_per_forwarded),
                median(&cost.cycles_per_chain_hz),
            )
        })
        .collect();
    assert_eq!(
        figures,
        [
            ("S", 100.0, 300.0, 150_000.0),
            ("1 nat", 300.0, 300.0, 150_000.0),
            ("2 firewall", 60.0, 60.0, 30_000.0),
        ]
    );
    assert!(page.contains("Cost of each function") && page.contains("1 nat"));
    assert!(text_table(&summary, None).contains("cycles per forwarded frame"));
    // A switch alone has no functions.
    for trial in results.steps.iter_mut().flat_map(|step| &mut step.trials) {
        trial.activity.elements.truncate(1);
    }
    let (summary, page) = checked(&results);
    assert!(summary.sizes[0].cases[0].functions.is_empty());
    assert!(!page.contains("Cost of each function"));
}

#[test]
fn a_rate_has_a_limit() {
    use crate::Limiter;
    // The simulated device loses frames above its rate.
    let with = |busy: Option<f64>| {
        let mut results = whole();
        for trial in results.steps.iter_mut().flat_map(|step| &mut step.trials) {
            let with_traffic_s = trial.request.warm_up_s + trial.result.elapsed_s;
            let counted = busy.map(|busy| {
                // The busier of two threads has three quarters.
                let cycles = with_traffic_s * 2e9 * busy / 0.75;
                count(cycles as u64, 1000)
            });
            trial.activity.elements = vec![element(counted)];
        }
        checked(&results)
    };
    let limit = |summary: &Summary, case: usize| {
        let limit = summary.sizes[0].cases[case].limits[0].clone().unwrap();
        let idle = |ratio: Option<crate::Spread>| ratio.map(|ratio| (ratio.median * 100.0).round());
        (
            limit.by,
            idle(limit.device_idle_ratio),
            idle(limit.tester_idle_ratio),
        )
    };
    let (summary, page) = with(Some(0.97));
    assert_eq!(
        limit(&summary, 0),
        (Limiter::DeviceCpu, Some(3.0), Some(25.0))
    );
    assert!(page.contains("Limited by") && page.contains("device, device idle "));
    let both = |text: &str| text.contains("device idle ") && text.contains(", tester idle 25");
    assert!(both(&page) && both(&text_table(&summary, None)));
    assert!(both(&crate::markdown(&summary)));
    assert!(!page.contains("although its forwarding CPUs"));
    let (summary, page) = with(Some(0.6));
    assert_eq!(
        limit(&summary, 0),
        (Limiter::NotDeviceCpu, Some(40.0), Some(25.0))
    );
    assert!(page.contains("although its forwarding CPUs were idle for 40"));
    assert!(text_table(&summary, None).contains("not the CPU, device idle 40"));
    let (summary, page) = with(None);
    assert_eq!(limit(&summary, 0), (Limiter::Device, None, Some(25.0)));
    let unknown = "device, device idle unknown, tester idle 25";
    assert!(page.contains(unknown) && text_table(&summary, None).contains(unknown));
    assert!(!page.contains("although its forwarding CPUs"));
}

#[test]
fn the_idle_time_of_the_kernel_is_that_of_its_cpus() {
    use crate::Limiter;
    let mut results = whole();
    for trial in results.steps.iter_mut().flat_map(|step| &mut step.trials) {
        let with_traffic_s = trial.request.warm_up_s + trial.result.elapsed_s;
        trial.activity.elements = vec![ElementActivity {
            is_kernels: true,
            kernel_cpus: Some(2),
            cpu_time_s: 0.8 * with_traffic_s,
            ..element(None)
        }];
    }
    let (summary, _) = checked(&results);
    let limit = summary.sizes[0].cases[0].limits[0].as_ref().unwrap();
    // The kernel accounts the time of its work too coarsely to decide.
    assert_eq!(limit.by, Limiter::Device);
    let idle = limit.device_idle_ratio.as_ref().unwrap().median;
    assert!((idle - 0.6).abs() < 1e-9, "{idle}");
}

#[test]
fn stalls_of_the_host_are_shown_with_each_trial() {
    let mut results = whole();
    for trial in results.steps.iter_mut().flat_map(|step| &mut step.trials) {
        trial.result.health.host_stalls = 3;
        trial.result.health.host_stall_time_ns = 45_500;
    }
    let (_, page) = checked(&results);
    assert!(page.contains("<td>3, 45.5\u{202f}µs</td>"));
    assert!(page.contains("Stalls of the host"));
    let (_, page) = checked_whole();
    assert!(!page.contains("<td>3, 45.5"));
}

#[test]
fn the_pacing_of_each_trial_is_shown() {
    let mut results = whole();
    for trial in results.steps.iter_mut().flat_map(|step| &mut step.trials) {
        let health = &mut trial.result.health;
        health.rate_error_ratio = Some(5e-5);
        health.burst_gaps = quietwire_tester::LatencySummary {
            samples: 20_000,
            p50_ns: Some(32_000),
            p99_ns: Some(33_000),
            p99_9_ns: None,
            max_ns: 90_000,
            ..Default::default()
        };
    }
    let (_, page) = checked(&results);
    let cells =
        "<td>+0.0050\u{202f}%</td><td>32.0\u{202f}µs, 33.0\u{202f}µs, –, 90.0\u{202f}µs</td>";
    assert!(page.contains(cells), "no {cells}");
}

#[test]
fn gaps_of_latency_trials_are_drawn_by_percentile() {
    const CHART: &str = "aria-label=\"Gaps between bursts by percentile\"";
    let mut results = whole();
    for trial in results.steps.iter_mut().flat_map(|step| &mut step.trials) {
        trial.result.health.burst_gaps = trial.result.latency.clone();
    }
    let (summary, page) = checked(&results);
    let trip = summary.sizes[0].cases[0].round_trip.as_ref().unwrap();
    let gaps = &trip.burst_gaps;
    assert_eq!((gaps.samples, gaps.max_ns), (trip.frames, trip.max_ns));
    let chart = page.split(CHART).nth(1).unwrap();
    let (chart, _) = chart.split_once("</svg>").unwrap();
    let largest = format!("largest: {}", crate::format::time_ns(gaps.max_ns as f64));
    assert!(chart.contains(&largest), "no {largest}: {chart}");
    let median = crate::format::time_ns(gaps.p50_ns.unwrap() as f64);
    assert!(chart.contains(&format!("p50: {median}")), "{chart}");
    // Trials of earlier versions have no gaps.
    let (_, page) = checked_whole();
    assert!(!page.contains(CHART) && !page.contains("<h3>Gaps between bursts</h3>"));
}

#[test]
fn losses_are_reported_by_their_places() {
    let results = whole();
    let summary = Summary::of(&results).unwrap();
    let lossy = |case: &&CaseSummary| {
        case.losses
            .as_ref()
            .is_some_and(|it| it.account.lost_frames > 0)
    };
    let case = summary.sizes[0].cases.iter().find(lossy).unwrap();
    let losses = case.losses.as_ref().unwrap();
    let placed: u64 = losses.account.places.iter().map(|place| place.frames).sum();
    assert_eq!(placed, losses.account.lost_frames);
    let valid = results.trials().filter(|(step, trial)| {
        step.case_name == case.name
            && step.frame_size.to_string() == "64"
            && trial.result.is_valid()
    });
    let lost: u64 = valid.map(|(_, trial)| trial.result.lost_frames).sum();
    assert_eq!(losses.account.lost_frames, lost);
    let page = html(&results).unwrap();
    assert_well_formed(&page);
    let table = page.split("Lost frames by place").last().unwrap();
    assert!(table.contains("S p1: tx_full") && table.contains("neither sent nor counted"));
    let document = json(&results).unwrap();
    let accounts = document["loss_accounts"].as_array().unwrap();
    assert!(
        accounts
            .iter()
            .all(|it| it["account"]["lost_frames"].as_u64() > Some(0))
    );
    assert!(
        accounts
            .iter()
            .any(|it| it["account"]["places"][0]["reason"] == "tx_full")
    );

    // Trials without loss data, and trials of stores of earlier versions.
    let mut silent = whole();
    for (index, trial) in silent
        .steps
        .iter_mut()
        .flat_map(|step| &mut step.trials)
        .enumerate()
    {
        let why = Accounted::Unavailable("it was busy".to_owned());
        trial.result.loss_account = (index > 0).then_some(why);
    }
    let page = html(&silent).unwrap();
    assert!(page.contains("have no loss data: it was busy.") && page.contains("<td>unknown</td>"));
    let trials = silent.steps.iter_mut().flat_map(|step| &mut step.trials);
    trials.for_each(|trial| trial.result.loss_account = None);
    assert!(!html(&silent).unwrap().contains("Lost frames by place"));
    assert_eq!(
        json(&silent).unwrap()["loss_accounts"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
}
