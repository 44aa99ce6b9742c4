// SPDX-License-Identifier: Apache-2.0
//! What a running study shows: a view or a bar on a terminal, plain lines elsewhere.

mod state;
#[cfg(test)]
mod tests;
mod view;

use std::io::IsTerminal;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use quietwire_study::{
    CaseSpec, DeedEvent, Estimate, FrameSize, Progress, StepKind, StudyFile, TrialEvent,
};
use quietwire_tester::{CitedCalibration, MissingCalibration};

use self::state::State;
use self::view::View;
use crate::text::say;

/// Shows how a study goes, on standard error.
pub(crate) struct Shown {
    place: Place,
    state: State,
}

enum Place {
    /// The whole terminal.
    View(Box<View>),
    /// Its last lines.
    Bar(ProgressBar),
    /// No terminal.
    Lines,
}

impl Shown {
    /// `with_view` asks for the whole terminal, where standard error is one.
    ///
    /// # Errors
    /// A terminal that cannot be drawn on.
    pub(crate) fn new(file: &StudyFile, with_view: bool) -> Result<Self> {
        let is_terminal = std::io::stderr().is_terminal();
        let place = if !is_terminal {
            Place::Lines
        } else if with_view {
            Place::View(Box::new(View::open()?))
        } else {
            Place::Bar(bar(file))
        };
        Ok(Self {
            place,
            state: State::new(file),
        })
    }

    /// The last word; the terminal is as it was.
    pub(crate) fn finish(&mut self) {
        match std::mem::replace(&mut self.place, Place::Lines) {
            Place::Bar(bar) => bar.finish_and_clear(),
            // It gives the terminal back when it is dropped.
            Place::View(_) | Place::Lines => {}
        }
    }

    fn say(&mut self, line: &str) {
        match &mut self.place {
            Place::View(view) => view.draw(&self.state),
            Place::Bar(bar) => bar.println(line),
            Place::Lines => say(line),
        }
    }

    /// Something was done, now or in an earlier run.
    fn did(&mut self, line: String, is_replayed: bool) {
        match &mut self.place {
            Place::View(view) => view.draw(&self.state),
            Place::Bar(bar) => {
                bar.inc(1);
                bar.set_message(line);
            }
            Place::Lines if is_replayed => {}
            Place::Lines => say(line),
        }
    }
}

fn bar(file: &StudyFile) -> ProgressBar {
    let bar = ProgressBar::new(u64::from(Estimate::of(file).trials));
    // The template is a constant: were it wrong, the plain bar would do.
    if let Ok(style) = ProgressStyle::with_template(
        "{elapsed_precise} {bar:30} {pos} of about {len} trials\n{wide_msg}",
    ) {
        bar.set_style(style);
    }
    bar
}

/// That searches may offer more than the tester was calibrated for.
fn exceeding(frame_size: FrameSize, max_rate_pps: f64, cited: &CitedCalibration) -> String {
    format!(
        "the tester was calibrated clean up to {:.4} Mpps with frames of {frame_size}, and 100 % of the load is {:.4} Mpps: \
         what is lost above the first may be the tester's",
        cited.clean_rate_pps / 1e6,
        max_rate_pps / 1e6,
    )
}

impl Progress for Shown {
    fn unavailable(&mut self, case: &CaseSpec, reason: &str) {
        self.say(&format!(
            "case {} is unavailable on this machine: {reason}",
            case.case.name
        ));
    }

    fn entering(&mut self, case: &CaseSpec) {
        self.state.entering(case);
        self.say(&format!(
            "case {}, round {}",
            case.case.name,
            case.round + 1
        ));
    }

    fn max_rate(&mut self, _frame_size: FrameSize, max_rate_pps: f64) {
        self.state.max_rate(max_rate_pps);
        self.say(&format!(
            "100 % of the load is {:.3} Mpps",
            max_rate_pps / 1e6
        ));
    }

    fn exceeds_calibration(
        &mut self,
        frame_size: FrameSize,
        max_rate_pps: f64,
        cited: &CitedCalibration,
    ) {
        let line = exceeding(frame_size, max_rate_pps, cited);
        self.state.remark(&line);
        self.say(&line);
    }

    fn uncalibrated(&mut self, missing: &MissingCalibration) {
        let line = missing.to_string();
        self.state.remark(&line);
        self.say(&line);
    }

    fn trial(&mut self, event: &TrialEvent<'_>) {
        let result = event.result;
        let cited = result.calibration.as_ref();
        let over = if cited.is_some_and(|cited| cited.is_exceeded) {
            " (more than the tester was calibrated for)"
        } else {
            ""
        };
        self.state.trial(event);
        let p99 = result
            .latency
            .p99_ns
            .map_or_else(String::new, |ns| format!(", p99 {:.1} us", ns as f64 / 1e3));
        let line = format!(
            "{} {}: {:.3} Mpps offered{over}, {:.4} % lost{p99}{}",
            event.case,
            event.kind,
            result.achieved_rate_pps / 1e6,
            result.loss_ratio * 100.0,
            if result.is_valid() { "" } else { ", INVALID" }
        );
        self.did(line, event.is_replayed);
    }

    fn deed(&mut self, event: &DeedEvent<'_>) {
        self.state.deed(event);
        let line = format!("{} {}: {}", event.case, event.kind, state::told(event));
        self.did(line, event.is_replayed);
    }

    fn step_done(&mut self, case: &str, _frame_size: FrameSize, kind: &StepKind) {
        self.state.step_done(case, kind);
    }
}
