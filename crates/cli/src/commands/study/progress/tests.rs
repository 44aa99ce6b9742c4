// SPDX-License-Identifier: Apache-2.0
//! Tests of the view of a study on a simulated device. The view is drawn into memory after every trial.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use quietwire_study::{
    ActionEvent, CaseSpec, FrameSize, GeneratorBench, OpenMode, Progress, StepKind, Store,
    StudyFile, TrialEvent, run_study,
};
use quietwire_tester::{CitedCalibration, SimOptions, SimulatedDevice};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::state::State;
use super::view::render;

const STUDY: &str = r#"
name = "seen"
title = "A study that is seen"
[device]
switch = "other"
topology = "vNet1"
link = "other"
[tester]
cpu = "0"
[trials]
duration-s = 1
max-rate-pps = 10_000_000
[search]
start-rate-percent = 20
start-step-percent = 20
resolution-percent = 1
goal = [{ name = "NDR", loss-ratio = 0.0 }, { name = "PDR", loss-ratio = 0.005 }]
[back-to-back]
longest-burst-s = 0.01
repeats = 1
[[case]]
name = "quiet"
neighbours = "none"
isolation = "none"
"#;

/// Returns the lines of a screen of 100 columns and 24 lines.
fn screen(state: &State, elapsed: Duration) -> Vec<String> {
    const COLUMNS: u16 = 100;
    let mut terminal = Terminal::new(TestBackend::new(COLUMNS, 24)).unwrap();
    terminal
        .draw(|frame| render(frame, state, elapsed))
        .unwrap();
    let cells = terminal.backend().buffer().content();
    cells
        .chunks(usize::from(COLUMNS))
        .map(|line| line.iter().map(|cell| cell.symbol()).collect())
        .collect()
}

/// Draws the view after every event.
struct Watched {
    state: State,
    /// Step, screen and rate of each trial.
    trials: Vec<(String, Vec<String>, f64)>,
    actions: Vec<Vec<String>>,
}

/// Simulated duration of every trial.
const TRIAL: Duration = Duration::from_secs(2);

impl Progress for Watched {
    fn entering(&mut self, case: &CaseSpec) {
        self.state.entering(case);
    }

    fn max_rate(&mut self, _frame_size: FrameSize, max_rate_pps: f64) {
        self.state.max_rate(max_rate_pps);
    }

    fn trial(&mut self, event: &TrialEvent<'_>) {
        self.state.trial(event);
        let elapsed = TRIAL * self.state.trials;
        let shown = screen(&self.state, elapsed);
        let rate_pps = event.result.trial.offered_rate_pps;
        self.trials.push((event.kind.to_string(), shown, rate_pps));
    }

    fn action(&mut self, event: &ActionEvent<'_>) {
        self.state.action(event);
        self.actions.push(screen(&self.state, TRIAL));
    }

    fn step_done(&mut self, case: &str, _frame_size: FrameSize, kind: &StepKind) {
        self.state.step_done(case, kind);
    }
}

fn file() -> StudyFile {
    StudyFile::parse(STUDY, Path::new("seen.toml")).unwrap()
}

fn watched() -> Watched {
    let file = file();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sqlite");
    let mut store = Store::open(&path, &file, STUDY, OpenMode::New).unwrap();
    let device = SimulatedDevice::new(SimOptions::default());
    let mut bench = GeneratorBench::new(&file, Box::new(device)).unwrap();
    let mut watched = Watched {
        state: State::new(&file),
        trials: Vec::new(),
        actions: Vec::new(),
    };
    let stop = AtomicBool::new(false);
    run_study(&file, &mut store, &mut bench, &mut watched, &stop).unwrap();
    watched
}

fn has(screen: &[String], part: &str) -> bool {
    screen.iter().any(|line| line.contains(part))
}

/// Returns the number before ` % apart`.
fn apart(screen: &[String]) -> Option<f64> {
    let line = screen.iter().find(|line| line.contains("% apart"))?;
    let before = line.split(" % apart").next()?;
    before.split_whitespace().last()?.parse().ok()
}

#[test]
fn the_interval_narrows_under_rate_loss_and_latency() {
    let watched = watched();
    for goal in ["NDR", "PDR"] {
        let of_goal: Vec<_> = watched
            .trials
            .iter()
            .filter(|(step, _, _)| step.contains(goal))
            .collect();
        assert!(of_goal.len() > 4, "{} trials for {goal}", of_goal.len());
        let mut widths = Vec::new();
        for (step, screen, rate_pps) in of_goal {
            assert!(has(screen, "A study that is seen"), "{screen:#?}");
            assert!(has(screen, "case quiet, round 1 of 1") && has(screen, step));
            let rate = format!("rate {:.3} Mpps", rate_pps / 1e6);
            assert!(has(screen, &rate), "no {rate}: {screen:#?}");
            assert!(has(screen, "loss 0.0000 %") || *rate_pps > 6.4e6);
            assert!(has(screen, "latency p50") && has(screen, " us   p99"));
            assert!(has(screen, &format!("{goal}, loss up to")));
            widths.extend(apart(screen));
        }
        assert!(
            widths.is_sorted_by(|a, b| a >= b) && widths.first() > widths.last(),
            "{goal}: {widths:?}"
        );
        // The steps end under 1 % of 10 Mpps.
        assert!(widths.last().is_some_and(|last| *last < 2.0), "{widths:?}");
    }
    // A finished step stays visible with its final interval.
    let (_, last, _) = watched.trials.last().unwrap();
    let through = last
        .iter()
        .find(|line| line.contains("quiet, ") && line.contains("NDR"));
    assert!(through.is_some_and(|line| line.contains("6.")), "{last:#?}");
}

#[test]
fn a_latency_that_is_mostly_the_testers_own_is_shown_as_an_upper_bound() {
    let mut state = watched().state;
    state.last_action = None;
    let last = state.last.as_mut().unwrap();
    (last.p50_ns, last.p99_ns) = (Some(10_000), Some(20_000));
    last.own_ns = Some([1_001, 2_000]);
    let shown = screen(&state, TRIAL);
    assert!(
        has(&shown, "latency p50 <10.0 us   p99 20.0 us"),
        "{shown:#?}"
    );
}

#[test]
fn the_time_left_shrinks_with_what_is_to_do() {
    let watched = watched();
    let left = |screen: &[String]| -> u64 {
        let line = screen.iter().find(|line| line.contains(" left")).unwrap();
        let time = line.split("about ").last().unwrap();
        let time = time.split(" left").next().unwrap();
        time.split(':')
            .fold(0, |sum, part| sum * 60 + part.parse::<u64>().unwrap())
    };
    let times: Vec<u64> = watched.trials.iter().map(|it| left(&it.1)).collect();
    let all = u64::from(watched.state.estimate.trials);
    // Every trial takes two seconds. After the first one, all others are left.
    assert_eq!(times[0], (all - 1) * TRIAL.as_secs());
    assert!(times.is_sorted_by(|a, b| a > b), "{times:?}");
    let unknown = screen(&State::new(&file()), Duration::from_secs(3));
    assert!(has(&unknown, "time left unknown") && has(&unknown, "setting up"));
}

#[test]
fn actions_and_remarks_are_shown() {
    let mut watched = watched();
    assert!(!watched.actions.is_empty());
    for screen in &watched.actions {
        assert!(
            has(screen, "burst of ") && has(screen, " lost"),
            "{screen:#?}"
        );
    }
    let cited = CitedCalibration {
        measured_unix_ns: 1,
        clean_rate_pps: 5e6,
        latency_floor_ns: 1,
        own: None,
        is_exceeded: true,
    };
    let line = super::exceeding(FrameSize::default(), 10e6, &cited);
    watched.state.remark(&line);
    let shown = screen(&watched.state, TRIAL);
    assert!(has(&shown, "calibrated up to 5.0000 Mpps"), "{shown:#?}");
}

#[test]
fn a_small_screen_is_drawn_on_as_well() {
    let watched = watched();
    for (columns, lines) in [(1, 1), (20, 5), (200, 60)] {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        let drawn = terminal.draw(|frame| render(frame, &watched.state, TRIAL));
        assert!(drawn.is_ok());
    }
}
