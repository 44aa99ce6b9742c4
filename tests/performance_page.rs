// SPDX-License-Identifier: Apache-2.0
//! Tests that docs/performance.md matches its stored runs, that verdicts follow from rounds, and that a run survives turns that fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

// Shared code of the benchmarks: this test uses the part that makes, reads and judges runs.
#[allow(dead_code)]
#[path = "../benches/common/attempt.rs"]
mod attempt;
#[allow(dead_code)]
#[path = "../benches/common/figure.rs"]
mod figure;
#[allow(dead_code)]
#[path = "../benches/common/goals.rs"]
mod goals;
#[allow(dead_code)]
#[path = "../benches/common/lcg.rs"]
mod lcg;
#[allow(dead_code)]
#[path = "../benches/common/plot.rs"]
mod plot;
#[allow(dead_code)]
#[path = "../benches/common/plots.rs"]
mod plots;
#[allow(dead_code)]
#[path = "../benches/common/record.rs"]
mod record;
#[allow(dead_code)]
#[path = "../benches/common/spread.rs"]
mod spread;
#[allow(dead_code)]
#[path = "../benches/common/study.rs"]
mod study;
#[allow(dead_code)]
#[path = "../benches/common/tables.rs"]
mod tables;
#[allow(dead_code)]
#[path = "../benches/common/turn.rs"]
mod turn;
#[allow(dead_code)]
#[path = "../benches/common/verdict.rs"]
mod verdict;
#[allow(dead_code)]
#[path = "../benches/common/words.rs"]
mod words;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use attempt::{Subject, measures_a_rate};
use goals::{GOALS, Goal, Ratio};
use lcg::Lcg;
use plots::{Form, PLOTS};
use quietwire_study::simulated::SimulatedBench;
use quietwire_study::{OpenMode, Silent, Store, StudyFile, run_study};
use record::{Absent, Bound, Figure, Judged, Point, Run, Verdict};
use serde_json::{Value, json};
use spread::Estimate;
use study::Study;
use tables::Stored;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn stored() -> Stored {
    tables::stored(&Path::new(ROOT).join(tables::RUNS)).unwrap()
}

/// Returns a single stored run.
fn only(file: &str, run: Run) -> Stored {
    Stored {
        runs: vec![(file.to_owned(), run)],
        studies: Vec::new(),
    }
}

#[test]
fn pages_are_what_the_stored_runs_give() {
    for name in tables::PAGES {
        let page = std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap();
        assert!(
            page.contains("<!-- made by make performance-page: "),
            "{name}"
        );
        let made = tables::page(&page, &stored()).unwrap();
        let differing = page.lines().zip(made.lines()).find(|(old, new)| old != new);
        assert!(
            page == made,
            "`make performance-page` changes {name}: {differing:?}"
        );
    }
}

#[test]
fn main_figures_of_ports_are_one_row_for_each_side() {
    let mut run = run([&[1.0; 5], &[]]);
    for (case, side, figure, values) in [
        (goals::TCP_RIGHT, "tap", Figure::ThroughputBps, [2e10, 1e10]),
        (goals::SMALL, "tap", Figure::ForwardedPps, [5e5, 5e5]),
        (goals::UDP_ECHO, "bridge", Figure::P50Us, [20.0, 22.0]),
    ] {
        let point = Point {
            group: String::new(),
            case: case.to_owned(),
            size: None,
            side: side.to_owned(),
        };
        for value in values {
            run.add(&point, figure, Some(value));
        }
    }
    let runs = only("kernel_ports.json", run);
    let text = "<!-- made by make performance-page: kernel_ports.json by side -->\n<!-- end -->";
    let made = tables::page(text, &runs).unwrap();
    let rows: Vec<&str> = made
        .lines()
        .filter(|line| line.starts_with("| ") && !line.contains("connection"))
        .collect();
    let expected = [
        "| tap | 15.00 (10.00 to 20.00) | 0.50 |  |  |",
        "| bridge |  |  | 21 (20 to 22) |  |",
    ];
    assert_eq!(rows, expected, "{made}");
    // Without a run, the page states the command that measures one.
    let made = tables::page(text, &Stored::default()).unwrap();
    assert!(
        made.contains("--bench kernel_ports` measures one"),
        "{made}"
    );
}

#[test]
fn page_shows_every_stored_run() {
    let page = std::fs::read_to_string(Path::new(ROOT).join(tables::PAGE)).unwrap();
    let Stored { runs, studies } = stored();
    let runs = runs.into_iter().map(|(file, _)| file);
    for file in runs.chain(studies.into_iter().map(|(file, _)| file)) {
        let marker = format!("performance-page: {file} ");
        assert!(page.contains(&marker), "{file} has no marker in the page");
    }
}

#[test]
fn stored_verdicts_follow_from_their_rounds() {
    for (file, run) in stored().runs {
        let again = run.judge(GOALS);
        assert_eq!(again.len(), run.goals.len(), "{file}");
        for judged in &run.goals {
            let found = again.iter().any(|it| is_same(it, judged));
            assert!(
                found,
                "`make performance-page` changes {file}: '{}'",
                judged.goal
            );
        }
    }
}

fn is_same(a: &Judged, b: &Judged) -> bool {
    a.goal == b.goal && a.peer == b.peer && a.wanted == b.wanted && a.verdict == b.verdict
}

#[test]
fn figures_are_what_the_stored_runs_give() {
    let drawn = tempfile::tempdir().unwrap();
    for (_, run) in stored().runs {
        plots::draw_run(drawn.path(), &run);
    }
    for figure in std::fs::read_dir(drawn.path()).unwrap() {
        let figure = figure.unwrap();
        let kept = Path::new(ROOT)
            .join(tables::IMAGES)
            .join(figure.file_name());
        let [drawn, kept] = [figure.path(), kept].map(|path| std::fs::read(path).ok());
        let name = figure.file_name();
        assert!(drawn == kept, "`make performance-page` changes {name:?}");
    }
}

#[test]
fn plots_are_drawn_and_linked_if_a_run_has_their_figures() {
    for plot in PLOTS {
        let directory = tempfile::tempdir().unwrap();
        let drawn = |run: &Run| {
            plots::draw_run(directory.path(), run);
            let files = std::fs::read_dir(directory.path()).unwrap();
            files.count()
        };
        let mut run = run([&[1.0; 5], &[]]);
        run.bench = plot.bench.to_owned();
        let point = |size| Point {
            group: format!("{} more", plot.group),
            case: CASE.to_owned(),
            size,
            side: "ours".to_owned(),
        };
        // The helper's case is in no group with a plot, and has no size.
        run.expect(&point(Some(10)), &[plot.figure]);
        assert_eq!((drawn(&run), plots::links(&run).as_str()), (0, ""));
        for value in [2e7, 1e7, 3e7] {
            run.add(&point(Some(10)), plot.figure, Some(value));
            run.add(&point(Some(1000)), plot.figure, Some(value * 1.5));
        }
        drawn(&run);
        let name = format!("{}.svg", plot.file);
        let svg = std::fs::read_to_string(directory.path().join(&name)).unwrap();
        // Lines of ports have the names of groups.
        let line = if plot.bench == "ports_scale" {
            "more"
        } else {
            "ours"
        };
        for text in [plot.title, plot.quantity, line] {
            assert!(svg.contains(text), "{name}: {text}");
        }
        if let Form::BySize(size) = plot.form {
            assert!(svg.contains(size), "{name}: {size}");
        }
        let link = format!("![{}](images/{name})\n", plot.description);
        assert!(plots::links(&run).contains(&link), "{link}");
        let marker = format!(
            "<!-- made by make performance-page: {}.json -->",
            plot.bench
        );
        let text = format!("{marker}\n<!-- end -->");
        let runs = only(&format!("{}.json", plot.bench), run);
        let page = tables::page(&text, &runs).unwrap();
        assert!(page.contains(&link), "{page}");
    }
}

#[test]
fn bars_show_sides_cases_and_medians() {
    let mut run = run([&[], &[]]);
    run.bench = "tracker_scale".to_owned();
    for (case, side, values) in [
        ("1 receive queue", "one CPU", [1.5e6, 1.25e6, 2e6]),
        ("1 receive queue", "two CPUs", [2e6, 2e6, 2e6]),
    ] {
        let point = Point {
            group: "forwarding CPUs".to_owned(),
            case: case.to_owned(),
            size: None,
            side: side.to_owned(),
        };
        for value in values {
            run.add(&point, Figure::ForwardedPps, Some(value));
        }
    }
    let directory = tempfile::tempdir().unwrap();
    plots::draw_run(directory.path(), &run);
    let svg = std::fs::read_to_string(directory.path().join("tracker-scale-cpus.svg")).unwrap();
    for text in [
        "one CPU: 1 receive queue: 1.5\n",
        "two CPUs: 1 receive queue: 2\n",
    ] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
}

const CASE: &str = "case";

fn run(rounds: [&[f64]; 2]) -> Run {
    let text = r#"{
        "bench": "b", "command": "", "date": "", "rounds": 5, "seconds": 1.0, "seed": 1, "helpers": "",
        "machine": {
            "cpu": "", "cpus": 2, "ghz": 1.0, "memory_gib": 1, "is_virtual": true, "system": "", "kernel": "",
            "dpdk": "", "huge_pages": 0
        },
        "sides": [], "absent": [], "series": [], "goals": []
    }"#;
    let mut run: Run = serde_json::from_str(text).unwrap();
    for (side, values) in ["ours", "theirs"].into_iter().zip(rounds) {
        let point = Point {
            group: String::new(),
            case: CASE.to_owned(),
            size: None,
            side: side.to_owned(),
        };
        for value in values {
            run.add(&point, Figure::ForwardedPps, Some(*value));
        }
    }
    run
}

fn verdict(run: &Run, bound: Bound, wanted: f64) -> Judged {
    let goal = Goal {
        bench: "b",
        name: "goal",
        of: (CASE, "ours"),
        figure: Figure::ForwardedPps,
        ratio: Ratio::Of((CASE, "theirs")),
        bound,
        wanted,
    };
    run.judge(&[goal]).remove(0)
}

#[test]
fn goal_is_met_or_missed_only_by_the_whole_interval() {
    let run = run([&[9.0, 10.0, 11.0, 10.0, 10.0], &[10.0; 5]]);
    for (bound, wanted, expected) in [
        (Bound::AtLeast, 0.9, Verdict::Met),
        (Bound::AtLeast, 0.95, Verdict::NotProven),
        (Bound::AtLeast, 1.1, Verdict::NotProven),
        (Bound::AtLeast, 1.11, Verdict::Missed),
        (Bound::AtMost, 1.1, Verdict::Met),
        (Bound::AtMost, 1.0, Verdict::NotProven),
        (Bound::AtMost, 0.89, Verdict::Missed),
    ] {
        let judged = verdict(&run, bound, wanted);
        assert_eq!(judged.verdict, expected, "{bound:?} {wanted}");
    }
}

#[test]
fn ratios_are_those_of_paired_rounds() {
    // The machine is twice as fast in every other round: the spread of each side is wide, but that of the ratios is not.
    let run = run([
        &[10.0, 20.0, 10.0, 20.0, 10.0],
        &[10.0, 20.0, 10.0, 20.0, 10.0],
    ]);
    let judged = verdict(&run, Bound::AtLeast, 1.0);
    assert_eq!(judged.verdict, Verdict::Met);
    let estimate = judged.estimate.unwrap();
    assert_eq!((estimate.low, estimate.high), (1.0, 1.0));
}

#[test]
fn few_rounds_prove_nothing() {
    let run = run([&[10.0; 4], &[1.0; 4]]);
    let judged = verdict(&run, Bound::AtLeast, 1.0);
    assert_eq!(judged.verdict, Verdict::NotProven);
    assert_eq!(judged.reason.unwrap(), "4 rounds; 5 are required");
}

#[test]
fn goal_without_its_peer_is_unavailable_with_a_reason() {
    let mut run = run([&[10.0; 5], &[]]);
    let judged = verdict(&run, Bound::AtLeast, 1.0);
    assert_eq!(judged.verdict, Verdict::Unavailable);
    assert_eq!(judged.reason.unwrap(), "not measured in this run");
    run.absent.push(Absent {
        side: "theirs".to_owned(),
        reason: "not installed".to_owned(),
    });
    let judged = verdict(&run, Bound::AtLeast, 1.0);
    assert_eq!(judged.reason.unwrap(), "not installed");
}

#[test]
fn interval_of_a_median_leaves_out_what_a_tenth_allows() {
    let values: Vec<f64> = (1..=9).map(f64::from).collect();
    let nine = Estimate::of_median(&values);
    // 1 - 2 * (1 + 9) / 512 = 0.96; one more on each side would be 0.82.
    assert_eq!((nine.low, nine.value, nine.high), (2.0, 5.0, 8.0));
    let five = Estimate::of_median(&values[..5]);
    assert_eq!((five.low, five.value, five.high), (1.0, 3.0, 5.0));
    let eight = Estimate::of_median(&values[..8]);
    assert_eq!((eight.low, eight.value, eight.high), (2.0, 4.5, 7.0));
}

#[test]
fn ratio_of_deviations_has_an_interval_around_it() {
    let wide: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i % 5)).collect();
    let narrow: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i % 5) / 10.0).collect();
    let estimate = Estimate::of_deviations(&narrow, &wide).unwrap();
    assert!((0.09..0.11).contains(&estimate.value), "{estimate:?}");
    assert!(estimate.low < estimate.value && estimate.value < estimate.high);
    assert_eq!(Estimate::of_deviations(&narrow, &[1.0; 20]), None);
}

#[test]
fn turns_are_permutations_and_repeat_with_their_seed() {
    let orders = |seed| {
        let mut turns = Lcg::new(seed);
        (0..50).map(|_| turns.order(5)).collect::<Vec<_>>()
    };
    let first = orders(7);
    assert_eq!(first, orders(7));
    assert_ne!(first, orders(8));
    for order in &first {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4]);
    }
    // Each of the five is sometimes first.
    assert!((0..5).all(|index| first.iter().any(|order| order[0] == index)));
}

#[test]
fn goals_have_names_of_their_own() {
    for (index, goal) in GOALS.iter().enumerate() {
        let others = GOALS[index + 1..].iter();
        let mut same = others.filter(|other| {
            other.bench == goal.bench && other.name == goal.name && other.of == goal.of
        });
        let clash = same.find(|other| match (goal.ratio, other.ratio) {
            (Ratio::Of(a), Ratio::Of(b)) => a == b,
            _ => true,
        });
        assert!(clash.is_none(), "{clash:?}");
    }
}

#[test]
fn page_without_the_end_of_a_part_is_refused() {
    let text = "a\n<!-- made by make performance-page: goals -->\nb\n";
    let error = tables::page(text, &Stored::default()).unwrap_err();
    assert!(error.contains("'goals'"), "{error}");
    let text = "a\n<!-- made by make performance-page: none.json -->\nb\n<!-- end -->\nc\n";
    let error = tables::page(text, &Stored::default()).unwrap_err();
    assert!(error.contains("none.json"), "{error}");
}

#[test]
fn turn_that_fails_leaves_its_round_empty_and_the_others_paired() {
    let mut run = run([&[], &[]]);
    let points = ["ours", "theirs"].map(|side| Point {
        group: String::new(),
        case: CASE.to_owned(),
        size: None,
        side: side.to_owned(),
    });
    let figures = [Figure::ForwardedPps, Figure::CyclesAFrame];
    for point in &points {
        run.expect(point, &figures);
    }
    for round in 0..5 {
        for point in &points {
            let fails = round == 2 && point.side == "ours";
            let is_measured = run.turn(std::slice::from_ref(point), |run| {
                run.add(point, Figure::ForwardedPps, Some(10.0));
                assert!(!fails, "a peer that has ended");
                run.add(point, Figure::CyclesAFrame, Some(5.0));
            });
            assert_eq!(is_measured, !fails);
        }
    }
    let rounds = |side: &str, figure| run.find(CASE, side, figure).unwrap().rounds.clone();
    for (figure, value) in figures.into_iter().zip([10.0, 5.0]) {
        let some = Some(value);
        assert_eq!(rounds("ours", figure), [some, some, None, some, some]);
        assert_eq!(rounds("theirs", figure), [some; 5]);
    }
    assert_eq!((run.failed, run.longest()), (1, 5));
    assert!(!run.is_without_values());
    let judged = verdict(&run, Bound::AtLeast, 1.0);
    assert_eq!(judged.verdict, Verdict::NotProven);
    assert_eq!(judged.reason.unwrap(), "4 rounds; 5 are required");
}

#[test]
fn run_of_which_every_turn_fails_has_no_values() {
    let mut run = run([&[], &[]]);
    assert!(!run.is_without_values(), "no figure is expected");
    let point = Point {
        group: String::new(),
        case: CASE.to_owned(),
        size: None,
        side: "ours".to_owned(),
    };
    run.expect(&point, &[Figure::ForwardedPps]);
    for _ in 0..2 {
        run.turn(std::slice::from_ref(&point), |_| panic!("no peer"));
    }
    assert!(run.is_without_values());
    assert_eq!((run.failed, run.longest()), (2, 2));
}

#[test]
fn trial_with_uncertain_losses_still_measures_a_rate() {
    let result = |received: u64, [missed, drops]: [u64; 2], causes: &[&str]| {
        let reasons: Vec<_> = causes
            .iter()
            .map(|cause| serde_json::json!({ "cause": cause, "text": "" }))
            .collect();
        let validity = match causes.is_empty() {
            true => serde_json::json!({ "state": "valid" }),
            false => serde_json::json!({ "state": "invalid", "reasons": reasons }),
        };
        serde_json::json!({
            "received_frames": received, "validity": validity,
            "health": { "missed_at_most_frames": missed, "receive_drops": drops },
        })
    };
    // Received frames, those that the tester missed and dropped, causes, and whether the rate is that of a device and of the tester.
    type Case = (u64, [u64; 2], &'static [&'static str], [bool; 2]);
    let cases: [Case; 9] = [
        (1000, [0, 0], &[], [true, true]),
        (1000, [10, 0], &["host-stall"], [true, true]),
        (1000, [11, 0], &["receive-gap"], [false, true]),
        (1000, [0, 1], &["receive-drops"], [false, true]),
        (1000, [0, 0], &["stretched", "host-stall"], [true, true]),
        (0, [0, 0], &["host-stall"], [false, false]),
        (1000, [0, 0], &["excess"], [false, false]),
        (1000, [0, 0], &["host-stall", "link-lost"], [false, false]),
        (1000, [0, 0], &["clock"], [false, false]),
    ];
    for (received, missed, causes, expected) in cases {
        let result = result(received, missed, causes);
        let subjects = [Subject::Device, Subject::Tester];
        let found = subjects.map(|subject| measures_a_rate(&result, subject));
        assert_eq!(found, expected, "{result}");
    }
    assert!(!measures_a_rate(&serde_json::json!({}), Subject::Tester));
}

const SHOOTOUT: &str = "<!-- made by make performance-page: switch-shootout.json -->\n<!-- end -->";

/// Returns the page's part of the study of switches.
fn shootout(stored: &Stored) -> String {
    tables::page(SHOOTOUT, stored).unwrap()
}

/// Returns the study that a report gives, and what a directory with the report stores.
fn study_of(report: &Value) -> (Study, Stored) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("switch-shootout.json");
    std::fs::write(&file, report.to_string()).unwrap();
    let stored = tables::stored(directory.path()).unwrap();
    assert!(stored.runs.is_empty(), "{report}");
    (stored.studies[0].1.clone(), stored)
}

/// Returns values as a report has them.
fn values(median: f64) -> Value {
    json!({ "median": median, "min": median, "max": median, "values": [median] })
}

/// Returns a case of a report: a rate in Mpps, the side that limited it, cycles by its own account and by CPU time.
fn case(name: &str, mpps: f64, by: &str, own: Option<(&str, f64)>, cpu: (&str, f64)) -> Value {
    let cycles = |(source, cycles): (&str, f64)| {
        let with_input = (source == "without_input").then(|| values(cycles * 1.5));
        json!({ "element": name, "cycles": values(cycles), "cycle_source": source, "with_input": with_input })
    };
    json!({
        "name": name, "description": format!("{name} in vNet1 over memif"),
        "goals": [{
            "name": "NDR", "loss_ratio": 0.0, "rate_pps": values(mpps * 1e6), "is_lower_limit_only": by == "tester",
        }],
        "limits": [{
            "by": by, "device_idle_ratio": own.map(|_| values(0.25)), "tester_idle_ratio": values(0.5),
        }],
        "own_cycles": own.map(cycles), "cpu_cycles": cycles(cpu),
        "cpu_rate": { "rate_pps": values(2e9 / cpu.1), "is_at_least": cpu.0 == "at_most" },
    })
}

/// Returns a report of a study of switches.
fn report(cases: &[Value]) -> Value {
    json!({
        "schema": 1, "date": "2026-11-29T00:00:00Z",
        "runs": [{
            "machine": {
                "cpu_model": "Some CPU", "cpus_online": "0-1", "memory_mib": 24105, "kernel_release": "6.18",
                "is_virtual": true, "settings": {},
            },
            "versions": { "quietwire": "0.2.0", "dpdk": "DPDK 25.11", "open-vswitch": null, "vpp": "vpp v26.10" },
        }],
        "summary": {
            "name": "switch-shootout", "started_unix_ns": 0, "state": { "state": "finished" },
            "is_simulated": false, "is_quick": false, "rounds": 5, "trials": 70, "invalid_trials": 2,
            "unavailable": [{ "name": "ovs", "description": "", "reason": "a | b", "has_failed": false }],
            "sizes": [{
                "frame_size": "64", "cases": cases,
                "rankings": [{ "goal": "NDR", "cases": [{ "name": "slow", "rank": 1 }, { "name": "fast", "rank": null }] }],
            }],
        },
    })
}

#[test]
fn switches_are_beside_each_other_with_their_limits_and_cycles() {
    let cases = [
        case(
            "slow",
            8.0,
            "device_cpu",
            Some(("counted", 118.0)),
            ("cpu_time", 125.0),
        ),
        case("fast", 20.0, "tester", None, ("at_most", 80.0)),
        case(
            "vpp",
            6.0,
            "not_device_cpu",
            Some(("without_input", 80.0)),
            ("cpu_time", 160.0),
        ),
    ];
    let (_, stored) = study_of(&report(&cases));
    let page = shootout(&stored);
    for line in [
        "    sudo quietwire study run switch-shootout",
        "Some CPU, virtual CPUs 0-1, 24 GiB, Linux 6.18, quietwire 0.2.0, DPDK 25.11, vpp v26.10. 2026-11-29T00:00:00Z: 5 rounds, 70 trials, of which 2 \
         are invalid.",
        "| 64 B | switch | NDR, Mpps | rank | limited by | cycles a frame, own account | cycles a frame, CPU time | Mpps at a full CPU |",
        "| slow | slow in vNet1 over memif | 8.00 | 1 | device, device idle 25 %, tester idle 50 % | 118 | 125 | 16.00 |",
        "| fast | fast in vNet1 over memif | at least 20.00 |  | tester, device idle unknown, tester idle 50 % | unknown | at most 80 | \
         at least 25.00 |",
        "| vpp | vpp in vNet1 over memif | 6.00 |  | not the CPU, device idle 25 %, tester idle 50 % | 80 without the input node, \
         at most 120 with it | 160 | 12.50 |",
        "| ovs | unavailable: a \\| b |  |  |  |  |  |  |",
    ] {
        assert!(page.lines().any(|it| it == line), "{line}\n{page}");
    }
    // The goals of all runs have those of the study too.
    let text = "<!-- made by make performance-page: goals -->\n<!-- end -->";
    let goals = tables::page(text, &stored).unwrap();
    assert!(
        goals.contains("| switches with a rate `at least` "),
        "{goals}"
    );
    let none = shootout(&Stored::default());
    assert!(
        none.contains("No run is stored yet. `sudo quietwire study run switch-shootout`"),
        "{none}"
    );
}

#[test]
fn cases_of_a_study_of_chains_have_the_cycles_of_each_part_and_no_goals() {
    let mut whole = case(
        "whole",
        4.0,
        "device_cpu",
        Some(("counted", 300.0)),
        ("cpu_time", 310.0),
    );
    let part = |name: &str, received: f64, forwarded: Option<f64>| {
        let forwarded = forwarded.map(values);
        json!({ "function": name, "position": null, "cycles": values(received), "cycles_per_forwarded": forwarded })
    };
    whole["functions"] = json!([
        part("switch", 150.0, Some(300.0)),
        part("1 nat", 210.0, None)
    ]);
    let unknown = case("unknown", 5.0, "device_cpu", None, ("cpu_time", 310.0));
    let mut text = report(&[whole, unknown]);
    text["summary"]["name"] = json!("service-chain");
    let (study, mut stored) = study_of(&text);
    study.check().unwrap();
    assert!(study.judge().is_empty());
    stored.studies[0].0 = "service-chain.json".to_owned();
    let marker = "<!-- made by make performance-page: service-chain.json -->\n<!-- end -->";
    let page = tables::page(marker, &stored).unwrap();
    for line in [
        "    sudo quietwire study run service-chain",
        "| 64 B | case | NDR, Mpps | rank | limited by | cycles for each frame that a part received | cycles for each frame that the chain \
         forwarded |",
        "| whole | whole in vNet1 over memif | 4.00 |  | device, device idle 25 %, tester idle 50 % | switch: 150; 1 nat: 210 | switch: 300 |",
    ] {
        assert!(page.lines().any(|it| it == line), "{line}\n{page}");
    }
    assert!(page.contains(" | unknown | unknown |"), "{page}");
    assert!(!page.contains("| goal |"), "{page}");
}

#[test]
fn switch_that_the_tester_limits_counts_if_it_takes_more_than_90_cycles() {
    type Own = Option<(&'static str, f64)>;
    let lower_bounds = |by: &str, own: Own, cpu: (&str, f64)| {
        let (study, _) = study_of(&report(&[case("it", 9.0, by, own, cpu)]));
        study.judge().remove(0)
    };
    let counted = |cycles: f64| Some(("counted", cycles));
    let other = ("at_most", 200.0);
    for (by, own, cpu, expected) in [
        ("tester", counted(91.0), other, Verdict::Missed),
        ("tester", counted(90.0), other, Verdict::Met),
        ("device", counted(200.0), other, Verdict::Met),
        // The whole cost of a frame is between 80 and 120 cycles, or above 90.
        (
            "tester",
            Some(("without_input", 80.0)),
            other,
            Verdict::NotProven,
        ),
        (
            "tester",
            Some(("without_input", 91.0)),
            other,
            Verdict::Missed,
        ),
        ("tester", Some(("without_input", 60.0)), other, Verdict::Met),
        ("tester", None, ("cpu_time", 91.0), Verdict::Missed),
        ("tester", None, ("at_most", 91.0), Verdict::NotProven),
        ("tester", None, ("at_most", 90.0), Verdict::Met),
    ] {
        let judged = lower_bounds(by, own, cpu);
        assert_eq!(judged.verdict, expected, "{by} {own:?} {cpu:?}");
        let names = judged.reason.unwrap_or_default();
        assert_eq!(names.starts_with("it (NDR, "), expected != Verdict::Met);
    }
}

#[test]
fn study_of_switches_names_those_that_miss_a_goal() {
    let of = |name: &str, cycles: f64, cpu: (&str, f64)| {
        case(name, 9.0, "tester", Some(("counted", cycles)), cpu)
    };
    let mut cases = [
        of("a", 100.0, ("cpu_time", 100.0)),
        of("b", 50.0, ("at_most", 60.0)),
        case("c", 9.0, "tester", None, ("at_most", 95.0)),
    ];
    cases[0]["limits"] = json!([null]);
    cases[1]["cpu_rate"] = Value::Null;
    let mut text = report(&cases);
    let judged = |text: &Value| study_of(text).0.judge();
    let reasons = |judged: &[Judged]| -> Vec<String> {
        let reasons = judged.iter().map(|goal| goal.reason.clone());
        reasons.map(Option::unwrap_or_default).collect()
    };
    let found = judged(&text);
    assert!(found.iter().all(|goal| goal.verdict == Verdict::Missed));
    let expected = [
        "a (NDR, cycles a frame: 100); undecided: c (NDR, cycles a frame: at most 95)",
        "a (NDR)",
        "b; undecided: c (at least)",
    ];
    assert_eq!(reasons(&found), expected);
    let page = shootout(&study_of(&text).1);
    let row =
        "| switches with a rate whose limit is unknown | - | at most 0 | 1 | missed: a (NDR) |";
    assert!(page.lines().any(|line| line == row), "{page}");
    assert!(page.contains(" | 1 (1 to 2) | missed: b;"), "{page}");
    // A study that is not complete proves nothing.
    text["summary"]["rounds"] = json!(4);
    let found = judged(&text);
    assert!(found.iter().all(|goal| goal.verdict == Verdict::NotProven));
    assert_eq!(reasons(&found)[1], "4 rounds; 5 are required: a (NDR)");
    text["summary"]["state"] = json!({ "state": "interrupted" });
    assert_eq!(
        reasons(&judged(&text))[1],
        "the study is interrupted: a (NDR)"
    );
    let found = judged(&report(&[]));
    assert!(
        found
            .iter()
            .all(|goal| goal.verdict == Verdict::Unavailable)
    );
}

#[test]
fn only_measured_studies_of_the_page_are_stored() {
    let full = report(&[case("it", 9.0, "device", None, ("cpu_time", 91.0))]);
    let refused = |key: &str, value: Value| {
        let mut report = full.clone();
        report["summary"][key] = value;
        study_of(&report).0.check().unwrap_err()
    };
    study_of(&full).0.check().unwrap();
    assert!(refused("is_simulated", json!(true)).contains("is simulated"));
    assert!(refused("is_quick", json!(true)).contains("is quick"));
    assert!(refused("name", json!("../x")).contains("it shows switch-shootout"));
}

const SIMULATED: &str = r#"
name = "switch-shootout"
title = "T"
rounds = 1
[tester]
cpu = "0"
[device]
switch = "quietwire"
topology = "vNet1"
link = "memif"
forwarding-cpus = "1"
service-cpus = "0"
control-cpus = "0"
[trials]
duration-s = 1
[search]
start-rate-percent = 20
start-step-percent = 20
resolution-percent = 20
best-of = 2
goal = [{ name = "PDR", loss-ratio = 0.005 }]
[[case]]
name = "ours"
[[case]]
name = "theirs"
switch = "vpp"
"#;

#[test]
fn reports_of_studies_are_read_and_their_shown_part_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sqlite");
    let file = StudyFile::parse(SIMULATED, Path::new("study.toml")).unwrap();
    let mut store = Store::open(&path, &file, SIMULATED, OpenMode::New).unwrap();
    let mut bench = SimulatedBench::new(3, 0);
    bench.invalid_ratio = 0.0;
    let stop = AtomicBool::new(false);
    run_study(&file, &mut store, &mut bench, &mut Silent, &stop).unwrap();
    let report = quietwire_report::json(&store.results().unwrap()).unwrap();
    let (study, stored) = study_of(&report);
    assert_eq!(study.check(), Ok(()));
    for (key, word) in [("is_simulated", "is simulated"), ("is_quick", "is quick")] {
        let mut unusable = report.clone();
        unusable["summary"][key] = json!(true);
        let error = study_of(&unusable).0.check().unwrap_err();
        assert!(error.contains(word), "{error}");
    }
    let page = shootout(&stored);
    for name in ["ours", "theirs"] {
        let row = format!("| {name} | ");
        assert!(page.contains(&row), "{page}");
    }
    let kept = directory.path().join("switch-shootout.json");
    study.write(&kept).unwrap();
    let written: Value = serde_json::from_slice(&std::fs::read(&kept).unwrap()).unwrap();
    assert!(written.get("courses").is_none() && report.get("courses").is_some());
    assert_eq!(shootout(&tables::stored(directory.path()).unwrap()), page);
}
