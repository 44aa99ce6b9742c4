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

use attempt::{Subject, measures_a_rate};
use goals::{GOALS, Goal, Ratio};
use lcg::Lcg;
use plots::{Form, PLOTS};
use record::{Absent, Bound, Figure, Judged, Point, Run, Verdict};
use spread::Estimate;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn stored() -> Vec<(String, Run)> {
    tables::stored(&Path::new(ROOT).join(tables::RUNS)).unwrap()
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
    let runs = [("kernel_ports.json".to_owned(), run)];
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
    let made = tables::page(text, &[]).unwrap();
    assert!(
        made.contains("--bench kernel_ports` measures one"),
        "{made}"
    );
}

#[test]
fn page_shows_every_stored_run() {
    let page = std::fs::read_to_string(Path::new(ROOT).join(tables::PAGE)).unwrap();
    for (file, _) in stored() {
        let marker = format!("performance-page: {file} ");
        assert!(page.contains(&marker), "{file} has no marker in the page");
    }
}

#[test]
fn stored_verdicts_follow_from_their_rounds() {
    for (file, run) in stored() {
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
    for (_, run) in stored() {
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
        let runs = [(format!("{}.json", plot.bench), run)];
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
    let error = tables::page(text, &[]).unwrap_err();
    assert!(error.contains("'goals'"), "{error}");
    let text = "a\n<!-- made by make performance-page: none.json -->\nb\n<!-- end -->\nc\n";
    let error = tables::page(text, &[]).unwrap_err();
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
