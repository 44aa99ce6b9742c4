// SPDX-License-Identifier: Apache-2.0
//! Studies with procedures, on a simulated device with known results.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use quietwire_search::procedure::{
    Action, AddressCachingFindings, AddressLearningRateFindings, BackToBackFindings,
    ProcedureFindings, ResetFindings, SystemRecoveryFindings,
};
use quietwire_tester::{SimOptions, SimulatedDevice};

use crate::*;

const STUDY: &str = concat!(
    r#"
name = "procedures"
title = "Procedures"
"#,
    include_str!("device.toml"),
    r#"
mode = "bridge"
[trials]
duration-s = 1
drain-s = 0.5
[search]
start-rate-percent = 20
start-step-percent = 20
resolution-percent = 0.5
goal = [{ name = "NDR", loss-ratio = 0.0 }]
[back-to-back]
longest-burst-s = 0.01
repeats = 3
[system-recovery]
repeats = 2
overload-s = 1
reduced-s = 1
[reset]
repeats = 2
limit-s = 5
[address-caching]
max-addresses = 1000
[address-learning-rate]
addresses = 500
max-rate-pps = 50000
resolution-pps = 10
[[case]]
name = "only"
neighbours = "none"
isolation = "none"
"#
);

const DEVICE: &str = "capacity=5M,line-rate=10M,buffer=2000,recovery=20ms,restart=300ms,addresses=700,learning-rate=20000";

/// Stops after this number of actions that were really run.
struct StopAfter<'a> {
    actions: u32,
    stop: &'a AtomicBool,
    finds_rate: bool,
}

impl Progress for StopAfter<'_> {
    fn action(&mut self, event: &ActionEvent<'_>) {
        if !event.is_replayed {
            self.actions = self.actions.saturating_sub(1);
            if self.actions == 0 {
                self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
    }

    fn max_rate(&mut self, _frame_size: FrameSize, rate_pps: f64) {
        assert!(
            self.finds_rate,
            "frames were sent to find a rate of {rate_pps}"
        );
    }
}

fn run(text: &str, device: &str, actions: u32) -> StudyResults {
    run_interrupted(text, device, actions, true)
}

/// Runs a study with this device, replaced by a new one after every `actions` actions, as after a restart of everything. Checks that no
/// rate is searched for unless `finds_rate` is true.
pub(super) fn run_interrupted(
    text: &str,
    device: &str,
    actions: u32,
    finds_rate: bool,
) -> StudyResults {
    let file = StudyFile::parse(text, Path::new("p.toml")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.sqlite");
    let mut mode = OpenMode::New;
    for _ in 0..1000 {
        let mut store = Store::open(&path, &file, text, mode).unwrap();
        mode = OpenMode::Resume;
        let options: SimOptions = device.parse().unwrap();
        let generator = Box::new(SimulatedDevice::new(options));
        let mut bench = GeneratorBench::new(&file, generator).unwrap();
        let stop = AtomicBool::new(false);
        let mut progress = StopAfter {
            actions,
            stop: &stop,
            finds_rate,
        };
        let end = run_study(&file, &mut store, &mut bench, &mut progress, &stop).unwrap();
        if end == StudyEnd::Finished {
            return store.results().unwrap();
        }
    }
    panic!("the study did not end");
}

fn findings(results: &StudyResults, kind: &StepKind) -> ProcedureFindings {
    let step = results.steps.iter().find(|step| step.kind == *kind);
    let step = step.unwrap();
    assert!(step.is_finished && step.trials.is_empty() && !step.actions.is_empty());
    let found = step.procedure.clone().unwrap();
    assert!(found.history.is_empty());
    found.findings
}

fn check(results: &StudyResults) {
    let ProcedureFindings::BackToBack(BackToBackFindings {
        longest_frames,
        config,
        ..
    }) = findings(results, &StepKind::BackToBack)
    else {
        panic!()
    };
    // The buffer of 2000 frames fills at half the rate of the burst.
    assert_eq!(longest_frames.len(), 3);
    for frames in longest_frames {
        assert!((3999..=4001).contains(&frames), "{frames}");
    }
    assert!(config.throughput_pps <= 5e6 && config.throughput_pps > 4.9e6);
    let ProcedureFindings::SystemRecovery(SystemRecoveryFindings { recoveries_s, .. }) =
        findings(results, &StepKind::SystemRecovery)
    else {
        panic!()
    };
    assert_eq!(recoveries_s, [Some(0.02); 2]);
    let ProcedureFindings::Reset(ResetFindings { reset_s, .. }) =
        findings(results, &StepKind::Reset)
    else {
        panic!()
    };
    assert!((reset_s.unwrap().mean - 0.3).abs() < 1e-6);
    let ProcedureFindings::AddressCaching(AddressCachingFindings {
        capacity_addresses, ..
    }) = findings(results, &StepKind::AddressCaching)
    else {
        panic!()
    };
    assert_eq!(capacity_addresses, Some(700));
    let ProcedureFindings::AddressLearningRate(AddressLearningRateFindings {
        learning_rate_pps,
        ..
    }) = findings(results, &StepKind::AddressLearningRate)
    else {
        panic!()
    };
    let rate = learning_rate_pps.unwrap();
    assert!((19_980..=20_050).contains(&rate), "{rate}");
}

#[test]
fn procedures_find_what_the_simulated_device_is_and_can_be_resumed_at_every_action() {
    let whole = run(STUDY, DEVICE, u32::MAX);
    check(&whole);
    // A new device knows no addresses: it has to learn them again before they are looked up.
    check(&run(STUDY, DEVICE, 1));
}

#[test]
fn addresses_are_measured_without_a_search_for_the_maximum_rate() {
    let (head, methods) = STUDY.split_once("[search]").unwrap();
    let (_, addresses) = methods.split_once("[address-caching]").unwrap();
    let text = format!("{head}[address-caching]{addresses}");
    let results = run_interrupted(&text, DEVICE, u32::MAX, false);
    assert!(results.max_rates.is_empty(), "{:?}", results.max_rates);
    let kinds: Vec<&StepKind> = results.steps.iter().map(|step| &step.kind).collect();
    assert_eq!(
        kinds,
        [&StepKind::AddressCaching, &StepKind::AddressLearningRate]
    );
    assert!(results.steps.iter().all(|step| step.is_finished));
}

#[test]
fn pauses_after_bursts_are_those_of_rfc_9004() {
    let pause_s = |keys: &str| {
        let text = STUDY.replace("longest-burst-s = 0.01", keys);
        let whole = run(&text, DEVICE, u32::MAX);
        let ProcedureFindings::BackToBack(found) = findings(&whole, &StepKind::BackToBack) else {
            panic!()
        };
        found.config.pause_s
    };
    assert_eq!(pause_s("longest-burst-s = 0.01"), 2.0);
    assert_eq!(pause_s("longest-burst-s = 30"), 30.0);
    assert_eq!(pause_s("longest-burst-s = 0.01\npause-s = 0.25"), 0.25);
}

#[test]
fn a_device_that_does_not_come_back_in_time_has_no_time() {
    let whole = run(STUDY, &DEVICE.replace("restart=300ms", "restart=6s"), 1);
    let ProcedureFindings::Reset(found) = findings(&whole, &StepKind::Reset) else {
        panic!()
    };
    assert_eq!((found.outages, found.reset_s), (vec![None, None], None));
    let never = DEVICE.replace("recovery=20ms", "recovery=1.5s");
    let whole = run(STUDY, &never, u32::MAX);
    let ProcedureFindings::SystemRecovery(found) = findings(&whole, &StepKind::SystemRecovery)
    else {
        panic!()
    };
    assert_eq!(
        (found.recoveries_s, found.recovery_s),
        (vec![None, None], None)
    );
}

#[test]
fn a_device_that_takes_every_rate_has_no_bursts_to_store() {
    let results = run(STUDY, "capacity=20M,line-rate=10M", u32::MAX);
    let step = results
        .steps
        .iter()
        .find(|step| step.kind == StepKind::BackToBack);
    let step = step.unwrap();
    assert!(step.is_finished && step.procedure.is_none() && step.actions.is_empty());
}

#[test]
fn a_generator_that_does_not_support_a_procedure_reports_it() {
    struct Plain(SimulatedDevice);
    impl quietwire_tester::TrafficGenerator for Plain {
        fn identity(
            &mut self,
        ) -> Result<quietwire_tester::GeneratorIdentity, quietwire_tester::TesterError> {
            self.0.identity()
        }
        fn abort_flag(&self) -> std::sync::Arc<AtomicBool> {
            self.0.abort_flag()
        }
        fn run(
            &mut self,
            trial: &quietwire_tester::Trial,
        ) -> Result<quietwire_tester::TrialResult, quietwire_tester::TesterError> {
            self.0.run(trial)
        }
        fn run_unpaced(
            &mut self,
            trial: &quietwire_tester::Trial,
        ) -> Result<quietwire_tester::TrialResult, quietwire_tester::TesterError> {
            self.0.run_unpaced(trial)
        }
    }
    let file = StudyFile::parse(STUDY, Path::new("p.toml")).unwrap();
    let device = SimulatedDevice::new(SimOptions::default());
    let mut bench = GeneratorBench::new(&file, Box::new(Plain(device))).unwrap();
    let frames = crate::run::frames(&file, &file.cases[0], FrameSize::default());
    let error = bench
        .act(&Action::FlushFdb, &frames)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cannot clear the device's address table"),
        "{error}"
    );
}

#[test]
fn neighbours_need_the_lab() {
    let text = STUDY.replace(
        "[[case]]",
        "[neighbours]\nstressors = [\"--cpu 1\"]\n[[case]]",
    );
    let text = text.replace("neighbours = \"none\"", "neighbours = \"everywhere\"");
    let file = StudyFile::parse(&text, Path::new("p.toml")).unwrap();
    let device = Box::new(SimulatedDevice::new(SimOptions::default()));
    let error = GeneratorBench::new(&file, device)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("case 'only' has neighbours"), "{error}");
}

#[test]
fn wrong_values_of_procedures_are_reported_with_their_key() {
    for (old, new, key) in [
        (
            "longest-burst-s = 0.01",
            "longest-burst-s = 0",
            "back-to-back.longest-burst-s",
        ),
        ("repeats = 3", "repeats = 0", "back-to-back.repeats"),
        ("repeats = 3", "goal = \"XDR\"", "back-to-back.goal"),
        (
            "repeats = 3",
            "goal = \"NDR\"\nrate-percent = 5",
            "back-to-back",
        ),
        (
            "overload-s = 1",
            "overload-s = -1",
            "system-recovery.overload-s",
        ),
        ("limit-s = 5", "kind = \"hardware\"", "reset.kind"),
        ("limit-s = 5", "limit-s = 1e9", "reset.limit-s"),
        (
            "max-addresses = 1000",
            "max-addresses = 0",
            "address-caching.max-addresses",
        ),
        (
            "max-addresses = 1000",
            "max-addresses = 10\nprobe-rate-pps = 0",
            "address-caching.probe-rate-pps",
        ),
        (
            "resolution-pps = 10",
            "resolution-pps = 60000",
            "address-learning-rate.resolution-pps",
        ),
        (
            "resolution-pps = 10",
            "speed = 10",
            "address-learning-rate.speed",
        ),
        (
            "resolution-pps = 10",
            "ageing-s = -1",
            "address-learning-rate.ageing-s",
        ),
        ("mode = \"bridge\"\n", "", "address-caching"),
        (
            "mode = \"bridge\"\n",
            "mode = \"bridge\"\nmax-entries = 0\n",
            "device.max-entries",
        ),
        (
            "mode = \"bridge\"\n",
            "max-entries = 10\n",
            "device.max-entries",
        ),
        (
            "[trials]",
            "[traffic.frames]\nseed = 2\n[trials]",
            "address-caching",
        ),
    ] {
        assert_eq!(STUDY.matches(old).count(), 1, "{old}");
        let text = STUDY.replace(old, new);
        let error = StudyFile::parse(&text, Path::new("p.toml")).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(&format!(": {key}: ")), "{message}");
    }
}
