// SPDX-License-Identifier: Apache-2.0
//! Progress output of a running study: a view or a bar on a terminal, otherwise plain lines.

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

/// Shows the progress of a study on standard error.
pub(crate) struct Shown {
    place: Place,
    state: State,
}

enum Place {
    /// The full screen of a terminal.
    View(Box<View>),
    /// A bar in the last lines of a terminal.
    Bar(ProgressBar),
    /// Plain lines, not on a terminal.
    Lines,
}

impl Shown {
    /// Creates the progress output. With `with_view`, it uses the full screen if standard error is a terminal.
    ///
    /// # Errors
    /// Drawing on the terminal fails.
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

    /// Ends the output and restores the terminal.
    pub(crate) fn finish(&mut self) {
        match std::mem::replace(&mut self.place, Place::Lines) {
            Place::Bar(bar) => bar.finish_and_clear(),
            // The drop of the view restores the terminal.
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

    /// Shows a finished action of this run or an earlier one.
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
    // The template is constant. If it were invalid, the default bar would be used.
    if let Ok(style) = ProgressStyle::with_template(
        "{elapsed_precise} {bar:30} {pos} of about {len} trials\n{wide_msg}",
    ) {
        bar.set_style(style);
    }
    bar
}

/// Warns that searches may offer a higher rate than the calibrated one.
fn exceeding(frame_size: FrameSize, max_rate_pps: f64, cited: &CitedCalibration) -> String {
    format!(
        "the tester is calibrated up to {:.4} Mpps with frames of {frame_size}, but 100 % load is {:.4} Mpps; \
         above the calibrated rate, the tester may lose frames",
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
        self.say(&format!("100 % load is {:.3} Mpps", max_rate_pps / 1e6));
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
            " (above the calibrated rate)"
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
