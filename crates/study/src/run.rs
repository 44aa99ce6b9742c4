// SPDX-License-Identifier: Apache-2.0
//! The loop: rounds, cases, frame sizes, steps, trials.
//!
//! Steps depend on stored outcomes alone, so a resumed study replays them: each step first gets the stored outcomes, and
//! runs only the trials that it then asks for.

mod rounds;

use std::sync::atomic::{AtomicBool, Ordering};

use quietwire_lab::topology::Encapsulation;
use quietwire_search::procedure::{Action, Observation};
use quietwire_search::{ConfigError, Findings, RecordError, TrialRequest};
use quietwire_tester::traffic::{Field, Headers, Ipv4, Traffic as Description, Vxlan};
use quietwire_tester::{
    IpVersion, LOW_RATE_PPS, LatencyStart, MissingCalibration, Trial, TrialResult,
};

use crate::bench::{ActionOutcome, Bench, BenchError, CaseSpec};
use crate::file::{Case, FrameSize, MaxRate, StudyFile};
use crate::methods::{Found, Machine, Next, StepKind, StepRequest};
use crate::pause;
use crate::plan::StepPlan;
use crate::progress::{ActionEvent, Progress, TrialEvent};
use crate::results::{RunEnd, outcome};
use crate::store::{Store, StoreError};

/// End of a study that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StudyEnd {
    /// Finished: the store has all results.
    Finished,
    /// Interrupted. A resumed run makes the missing trials.
    Interrupted,
}

/// Error that ends a study. Everything stored before remains.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Error of the bench.
    #[error("case {case}, round {}: {doing}: {source}", round.saturating_add(1))]
    Bench {
        /// Name of the case.
        case: String,
        /// Number of the round, from 0.
        round: u32,
        /// Current action.
        doing: &'static str,
        /// Error.
        source: BenchError,
    },
    /// A method cannot work with the rates.
    #[error("case {case}, {kind}: {source}")]
    Method {
        /// Name of the case.
        case: String,
        /// Step.
        kind: StepKind,
        /// Problem.
        source: ConfigError,
    },
    /// A trial has an outcome that is impossible.
    #[error("case {case}, {kind}: {source}")]
    Outcome {
        /// Name of the case.
        case: String,
        /// Step.
        kind: StepKind,
        /// Problem.
        source: RecordError,
    },
    /// The stored trials are not the ones that this program would make.
    #[error(
        "cannot resume the store: trial {} of case {case}, {kind}, differs from the one that this version would run (use the version that wrote the store, or start over with --fresh)",
        sequence.saturating_add(1)
    )]
    NotReplayable {
        /// Name of the case.
        case: String,
        /// Step.
        kind: StepKind,
        /// Position of the trial in its step, from 0.
        sequence: u32,
    },
    /// An error, and another error during the cleanup.
    #[error("{first}; and then {second}")]
    Twice {
        /// First error.
        first: Box<RunError>,
        /// Error of the cleanup.
        second: Box<RunError>,
    },
}

/// Runs the trials of a study that are not in the store. `stop` is checked before every trial; if it is set, the study ends
/// after the current trial.
///
/// # Errors
/// [`RunError`]. The current case is undone, and the store records the end of the run.
pub fn run_study(
    file: &StudyFile,
    store: &mut Store,
    bench: &mut dyn Bench,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<StudyEnd, RunError> {
    store.begin_run(&bench.environment())?;
    let mut runner = Runner {
        file,
        store,
        bench,
        progress,
        stop,
        entered: None,
        relearn: None,
        compared: Vec::new(),
        missing: Vec::new(),
        unavailable: Vec::new(),
        invalid_in_a_row: 0,
    };
    let done = runner.rounds();
    let left = runner.leave_entered_case();
    let outcome = both(done, left);
    let end = match &outcome {
        Ok(StudyEnd::Finished) => RunEnd::Finished,
        Ok(StudyEnd::Interrupted) => RunEnd::Interrupted,
        Err(error) => RunEnd::Failed(error.to_string()),
    };
    let noted = store.end_run(&end).map_err(RunError::from);
    both(outcome, noted)
}

/// Returns the first result, unless an error occurred. If both failed, the error reports both.
fn both<T>(first: Result<T, RunError>, second: Result<(), RunError>) -> Result<T, RunError> {
    match (first, second) {
        (first, Ok(())) => first,
        (Ok(_), Err(second)) => Err(second),
        // A full disk, for example, causes the same error in the cleanup.
        (Err(first), Err(second)) if first.to_string() == second.to_string() => Err(first),
        (Err(first), Err(second)) => Err(RunError::Twice {
            first: Box::new(first),
            second: Box::new(second),
        }),
    }
}

/// Position of a trial or action in a study.
struct StepPosition<'a> {
    spec: &'a CaseSpec,
    frame_size: FrameSize,
    step: &'a StepPlan,
    step_id: i64,
}

struct Runner<'a> {
    file: &'a StudyFile,
    store: &'a mut Store,
    bench: &'a mut dyn Bench,
    progress: &'a mut dyn Progress,
    stop: &'a AtomicBool,
    entered: Option<CaseSpec>,
    /// Learning of addresses from an earlier run, which the device of this run has not done yet.
    relearn: Option<Action>,
    /// Frame sizes and the cases of their maximum rates for which the rate is already compared with the tester's
    /// calibration.
    compared: Vec<(Option<String>, FrameSize)>,
    /// Missing calibrations that are already reported.
    missing: Vec<MissingCalibration>,
    /// Positions of the unavailable cases.
    unavailable: Vec<usize>,
    /// Consecutive trials and actions in which the tester failed.
    invalid_in_a_row: u32,
}

impl Runner<'_> {
    fn case(&mut self, spec: &CaseSpec) -> Result<StudyEnd, RunError> {
        let steps = StepPlan::of_case(self.file, &spec.case);
        for frame_size in &self.file.traffic.frame_sizes {
            let mut found = Vec::new();
            for step in &steps {
                if self.step(spec, *frame_size, step, &mut found)? == StudyEnd::Interrupted {
                    return Ok(StudyEnd::Interrupted);
                }
            }
        }
        Ok(StudyEnd::Finished)
    }

    fn step(
        &mut self,
        spec: &CaseSpec,
        frame_size: FrameSize,
        step: &StepPlan,
        found: &mut Vec<(StepKind, Findings)>,
    ) -> Result<StudyEnd, RunError> {
        // Measuring the rate takes many trials.
        let is_given = matches!(self.file.trials.max_rate_pps, MaxRate::Pps(_));
        let offers_frames = !step.kind.opens_connections();
        let has_rate = offers_frames && (is_given || step.uses_max_rate());
        let max_rate_pps = if has_rate {
            self.max_rate(spec, frame_size)?
        } else {
            Some(NO_RATE_PPS)
        };
        let Some(max_rate_pps) = max_rate_pps else {
            return Ok(StudyEnd::Interrupted);
        };
        let case = &spec.case.name;
        let is_raising = !is_given && self.bench.raises_max_rate();
        let mut machine = step
            .machine(max_rate_pps, is_raising, found)
            .map_err(|source| RunError::Method {
                case: case.clone(),
                kind: step.kind.clone(),
                source,
            })?;
        let step_id = self
            .store
            .step_id(spec.round, case, frame_size, &step.kind)?;
        let mut sequence = self.replay(spec, frame_size, step, step_id, &mut machine)?;
        let position = StepPosition {
            spec,
            frame_size,
            step,
            step_id,
        };
        loop {
            let next = match machine.next() {
                Next::Done(what) => {
                    self.store.finish_step(step_id, &what)?;
                    if let Found::Search(findings) = what {
                        found.push((step.kind.clone(), findings));
                    }
                    self.progress.step_done(case, frame_size, &step.kind);
                    return Ok(StudyEnd::Finished);
                }
                next => next,
            };
            self.pause_after_invalid();
            if self.is_stopped() {
                return Ok(StudyEnd::Interrupted);
            }
            self.enter(spec)?;
            if has_rate {
                self.compare(spec, frame_size, max_rate_pps);
            } else if offers_frames {
                let trial = self.trial_at(spec, frame_size, max_rate_pps);
                self.report_missing(&trial);
            }
            match next {
                Next::Run(asked) => self.run_trial(&position, sequence, asked, &mut machine)?,
                Next::Do(action) => self.do_action(&position, sequence, action, &mut machine)?,
                Next::Apply(plan) => {
                    let observed = self.bench.apply(&plan);
                    machine.applied(
                        observed
                            .map_err(|source| of_bench(spec, "measuring applications", source))?,
                    );
                }
                Next::Done(_) => {}
            }
            sequence = sequence.saturating_add(1);
        }
    }

    fn run_trial(
        &mut self,
        position: &StepPosition<'_>,
        sequence: u32,
        asked: StepRequest,
        machine: &mut Machine,
    ) -> Result<(), RunError> {
        let (spec, step) = (position.spec, position.step);
        let trial = Trial {
            rate_tolerance_pps: asked.tolerance_pps,
            ..self.trial(spec, asked.request, position.frame_size)
        };
        let measured = self
            .bench
            .run(&trial)
            .map_err(|source| of_bench(spec, "running a trial", source))?;
        self.count_invalid(!measured.result.is_valid());
        self.store
            .add_trial(position.step_id, sequence, &trial, &measured)?;
        self.report_trial(
            spec,
            position.frame_size,
            step,
            sequence,
            &measured.result,
            false,
        );
        record(machine, spec, step, &measured.result)
    }

    fn do_action(
        &mut self,
        position: &StepPosition<'_>,
        sequence: u32,
        action: Action,
        machine: &mut Machine,
    ) -> Result<(), RunError> {
        // `frames` gives the frames. Rate and duration are specific to each action.
        let frames = self.trial(
            position.spec,
            TrialRequest {
                rate_pps: 1.0,
                duration_s: self.file.trials.duration_s,
            },
            position.frame_size,
        );
        let mut act = |action: &Action| {
            let observed = self.bench.act(action, &frames);
            observed.map_err(|source| {
                of_bench(position.spec, "running an action of a procedure", source)
            })
        };
        let mut failed = None;
        if let Some(learn) = self.relearn.take() {
            let is_invalid = |observed: &ActionOutcome| {
                matches!(observed.observation, Observation::Invalid { .. })
            };
            for again in [Action::FlushFdb, learn] {
                failed = failed.or(Some(act(&again)?).filter(is_invalid));
            }
        }
        // If the device fails to learn the addresses again, looking them up proves nothing.
        let observed = match failed {
            Some(failed) => failed,
            None => act(&action)?,
        };
        self.count_invalid(matches!(observed.observation, Observation::Invalid { .. }));
        self.store.add_action(
            position.step_id,
            sequence,
            &action,
            &observed.observation,
            &observed.activity,
        )?;
        self.report_action(position, sequence, &action, &observed.observation, false);
        observe(machine, position, observed.observation)
    }

    /// Replays a procedure; see [`Self::replay`].
    fn replay_actions(
        &mut self,
        position: &StepPosition<'_>,
        machine: &mut Machine,
        from: u32,
    ) -> Result<u32, RunError> {
        let mut sequence = from;
        self.relearn = None;
        for stored in self.store.actions_of(position.step_id)? {
            self.relearn = matches!(stored.action, Action::Learn { .. }).then_some(stored.action);
            let is_same = stored.sequence == sequence
                && matches!(machine.next(), Next::Do(action) if action == stored.action);
            if !is_same {
                return Err(RunError::NotReplayable {
                    case: position.spec.case.name.clone(),
                    kind: position.step.kind.clone(),
                    sequence,
                });
            }
            self.report_action(
                position,
                sequence,
                &stored.action,
                &stored.observation,
                true,
            );
            observe(machine, position, stored.observation)?;
            sequence = sequence.saturating_add(1);
        }
        Ok(sequence)
    }

    fn report_action(
        &mut self,
        position: &StepPosition<'_>,
        sequence: u32,
        action: &Action,
        observation: &Observation,
        is_replayed: bool,
    ) {
        self.progress.action(&ActionEvent {
            case: &position.spec.case.name,
            frame_size: position.frame_size,
            kind: &position.step.kind,
            sequence,
            action,
            observation,
            is_replayed,
        });
    }

    /// Replays the stored trials of a step. Returns their number.
    fn replay(
        &mut self,
        spec: &CaseSpec,
        frame_size: FrameSize,
        step: &StepPlan,
        step_id: i64,
        machine: &mut Machine,
    ) -> Result<u32, RunError> {
        let mut sequence = 0_u32;
        if let Some(observed) = self.store.application_of(step_id)? {
            machine.applied(observed);
        }
        for stored in self.store.trials_of(step_id)? {
            let is_same = stored.sequence == sequence
                && match machine.next() {
                    Next::Run(asked) => {
                        let trial = Trial {
                            // The tolerance affects validity only, not the sent frames, so an earlier version may have stored a different
                            // one.
                            rate_tolerance_pps: stored.request.rate_tolerance_pps,
                            ..self.trial(spec, asked.request, frame_size)
                        };
                        trial == stored.request
                    }
                    Next::Do(_) | Next::Apply(_) | Next::Done(_) => false,
                };
            if !is_same {
                return Err(RunError::NotReplayable {
                    case: spec.case.name.clone(),
                    kind: step.kind.clone(),
                    sequence,
                });
            }
            self.report_trial(spec, frame_size, step, sequence, &stored.result, true);
            record(machine, spec, step, &stored.result)?;
            sequence = sequence.saturating_add(1);
        }
        let position = StepPosition {
            spec,
            frame_size,
            step,
            step_id,
        };
        self.replay_actions(&position, machine, sequence)
    }

    /// Returns 100 % of the load, measured once for all cases with the same device and traffic. None if the study stops before.
    fn max_rate(
        &mut self,
        spec: &CaseSpec,
        frame_size: FrameSize,
    ) -> Result<Option<f64>, RunError> {
        let scale = self.file.scale_of(&spec.case);
        let scale = scale.map(|case| case.name.as_str());
        if let Some(known) = self.store.max_rate(scale, frame_size)? {
            return Ok(Some(known));
        }
        let (rate_pps, origin) = match self.file.trials.max_rate_pps {
            MaxRate::Pps(rate_pps) => (rate_pps, "file"),
            MaxRate::Auto if self.is_stopped() => return Ok(None),
            MaxRate::Auto => {
                self.enter(spec)?;
                let rate_pps = self
                    .bench
                    .calibrate(frame_size)
                    .map_err(|source| of_bench(spec, "finding the highest rate", source))?;
                (rate_pps, "calibrated")
            }
        };
        self.store
            .set_max_rate(scale, frame_size, rate_pps, origin)?;
        self.progress.max_rate(frame_size, rate_pps);
        Ok(Some(rate_pps))
    }

    /// Reports, once for each maximum rate, whether searches may exceed the calibrated rate of the tester, and which calibration
    /// is missing.
    fn compare(&mut self, spec: &CaseSpec, frame_size: FrameSize, max_rate_pps: f64) {
        let scale = self.file.scale_of(&spec.case);
        let rate = (scale.map(|case| case.name.clone()), frame_size);
        if self.compared.contains(&rate) {
            return;
        }
        self.compared.push(rate);
        let trial = self.trial_at(spec, frame_size, max_rate_pps);
        self.report_missing(&trial);
        let cited = self.bench.cited(&trial, max_rate_pps);
        if let Some(cited) = cited.filter(|cited| cited.is_exceeded) {
            self.progress
                .exceeds_calibration(frame_size, max_rate_pps, &cited);
        }
    }

    /// Reports, once, that the tester has no calibration for such frames.
    fn report_missing(&mut self, trial: &Trial) {
        let missing = self.bench.missing_calibration(trial);
        if let Some(missing) = missing.filter(|missing| !self.missing.contains(missing)) {
            self.progress.uncalibrated(&missing);
            self.missing.push(missing);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn count_invalid(&mut self, is_invalid: bool) {
        let more = self.invalid_in_a_row.saturating_add(1);
        self.invalid_in_a_row = if is_invalid { more } else { 0 };
    }

    /// Pauses after invalid trials, unless the study is to stop.
    fn pause_after_invalid(&self) {
        let pause = self.bench.pause_after_invalid(self.invalid_in_a_row);
        pause::wait(pause, self.stop);
    }

    fn trial(&self, spec: &CaseSpec, request: TrialRequest, frame_size: FrameSize) -> Trial {
        Trial {
            offered_rate_pps: request.rate_pps,
            duration_s: request.duration_s,
            ..frames(self.file, &spec.case, frame_size)
        }
    }

    /// Returns a trial of the usual duration at this rate, frames per second.
    fn trial_at(&self, spec: &CaseSpec, frame_size: FrameSize, rate_pps: f64) -> Trial {
        let request = TrialRequest {
            rate_pps,
            duration_s: self.file.trials.duration_s,
        };
        self.trial(spec, request, frame_size)
    }

    fn enter(&mut self, spec: &CaseSpec) -> Result<(), RunError> {
        if self.entered.is_some() {
            return Ok(());
        }
        self.progress.entering(spec);
        let settings = self
            .bench
            .enter_case(spec)
            .map_err(|source| of_bench(spec, "setting the case up", source))?;
        self.entered = Some(spec.clone());
        self.store
            .add_entry(spec.round, &spec.case.name, &settings)?;
        Ok(())
    }

    fn leave_entered_case(&mut self) -> Result<(), RunError> {
        let Some(spec) = self.entered.take() else {
            return Ok(());
        };
        self.progress.leaving(&spec);
        let kept = self.keep_consoles(&spec);
        let left = self.bench.leave_case();
        let left = left.map_err(|source| of_bench(&spec, "undoing the case", source));
        both(kept, left)
    }

    fn keep_consoles(&mut self, spec: &CaseSpec) -> Result<(), RunError> {
        let printed = self.bench.consoles();
        let printed =
            printed.map_err(|source| of_bench(spec, "reading the guests' consoles", source))?;
        for (element, printed) in printed {
            let (round, name) = (spec.round, &spec.case.name);
            self.store.add_console(round, name, &element, &printed)?;
        }
        Ok(())
    }

    fn report_trial(
        &mut self,
        spec: &CaseSpec,
        frame_size: FrameSize,
        step: &StepPlan,
        sequence: u32,
        result: &TrialResult,
        is_replayed: bool,
    ) {
        self.progress.trial(&TrialEvent {
            case: &spec.case.name,
            frame_size,
            kind: &step.kind,
            sequence,
            result,
            is_replayed,
        });
    }
}

fn of_bench(spec: &CaseSpec, doing: &'static str, source: BenchError) -> RunError {
    RunError::Bench {
        case: spec.case.name.clone(),
        round: spec.round,
        doing,
        source,
    }
}

fn record(
    machine: &mut Machine,
    spec: &CaseSpec,
    step: &StepPlan,
    result: &TrialResult,
) -> Result<(), RunError> {
    machine
        .record(outcome(result))
        .map_err(|source| RunError::Outcome {
            case: spec.case.name.clone(),
            kind: step.kind.clone(),
            source,
        })
}

fn observe(
    machine: &mut Machine,
    position: &StepPosition<'_>,
    observation: Observation,
) -> Result<(), RunError> {
    machine
        .observe(observation)
        .map_err(|source| RunError::Outcome {
            case: position.spec.case.name.clone(),
            kind: position.step.kind.clone(),
            source,
        })
}

/// Returns the frames of all trials of a case. Rate and duration are set by each trial.
pub(crate) fn frames(file: &StudyFile, case: &Case, frame_size: FrameSize) -> Trial {
    let traffic = file.traffic_of(case);
    let encapsulation = file.device_of(case).encapsulation();
    let described = traffic.frames.or_else(|| of_overlay(encapsulation));
    Trial {
        offered_rate_pps: 1.0,
        duration_s: file.trials.duration_s,
        warm_up_s: file.trials.warm_up_s,
        drain_s: file.trials.drain_s,
        frame_sizes: frame_size.0,
        directions: traffic.directions,
        flows: traffic.flows,
        mac_addresses: traffic.mac_addresses,
        destinations: traffic.ip_destinations,
        ip: match encapsulation {
            Encapsulation::Ipv6 => IpVersion::V6,
            _ => IpVersion::V4,
        },
        low_rate_pps: LOW_RATE_PPS,
        reflected: false,
        latency_start: LatencyStart::Sent,
        rate_tolerance_pps: None,
        traffic: described.map(Box::new),
    }
}

/// 100 % of the load of a step that does not use it.
const NO_RATE_PPS: f64 = 1.0;

/// VXLAN network identifier of an overlay, if the file describes no frames.
const OVERLAY_VNI: u128 = 42;

/// Returns the frames of an overlay (RFC 7348), which require a description; none for other encapsulations.
fn of_overlay(encapsulation: Encapsulation) -> Option<Description> {
    (encapsulation == Encapsulation::Vxlan).then(|| Description {
        vxlan: Some(Vxlan {
            vni: Field::fixed(OVERLAY_VNI),
        }),
        inner: Some(Headers {
            ipv4: Some(Ipv4::default()),
            ..Headers::default()
        }),
        ..Description::default()
    })
}
