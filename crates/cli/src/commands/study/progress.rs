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
    ActionEvent, CaseSpec, Estimate, FrameSize, Progress, StepKind, StudyFile, TrialEvent,
};
use quietwire_tester::{CitedCalibration, MissingCalibration};

use self::state::{State, latency_us};
use self::view::View;
use crate::text::{loss_percent, say};

/// Shows the progress of a study on standard error.
pub(crate) struct ProgressView {
    display: ProgressDisplay,
    state: State,
}

enum ProgressDisplay {
    /// The full screen of a terminal.
    View(Box<View>),
    /// A bar in the last lines of a terminal.
    Bar(ProgressBar),
    /// Plain lines, not on a terminal.
    Lines,
}

impl ProgressView {
    /// Creates the progress output. With `with_view`, it uses the full screen if standard error is a terminal.
    ///
    /// # Errors
    /// Drawing on the terminal fails.
    pub(crate) fn new(file: &StudyFile, with_view: bool) -> Result<Self> {
        let is_terminal = std::io::stderr().is_terminal();
        let display = if !is_terminal {
            ProgressDisplay::Lines
        } else if with_view {
            ProgressDisplay::View(Box::new(View::open()?))
        } else {
            ProgressDisplay::Bar(bar(file))
        };
        Ok(Self {
            display,
            state: State::new(file),
        })
    }

    /// Ends the output and restores the terminal.
    pub(crate) fn finish(&mut self) {
        match std::mem::replace(&mut self.display, ProgressDisplay::Lines) {
            ProgressDisplay::Bar(bar) => bar.finish_and_clear(),
            // The drop of the view restores the terminal.
            ProgressDisplay::View(_) | ProgressDisplay::Lines => {}
        }
    }

    fn say(&mut self, line: &str) {
        match &mut self.display {
            ProgressDisplay::View(view) => view.draw(&self.state),
            ProgressDisplay::Bar(bar) => bar.println(line),
            ProgressDisplay::Lines => say(line),
        }
    }

    /// Shows a finished action of this run or an earlier one.
    fn did(&mut self, line: String, is_replayed: bool) {
        match &mut self.display {
            ProgressDisplay::View(view) => view.draw(&self.state),
            ProgressDisplay::Bar(bar) => {
                bar.inc(1);
                bar.set_message(line);
            }
            ProgressDisplay::Lines if is_replayed => {}
            ProgressDisplay::Lines => say(line),
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

impl Progress for ProgressView {
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
            case.round.saturating_add(1)
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
        let own = cited.and_then(|cited| cited.own.as_ref());
        let own_ns = own.map(|own| own.at_or_max(99.0));
        let p99 = match result.latency.p99_ns {
            None => String::new(),
            Some(ns) => format!(", p99 {}", latency_us(ns, own_ns)),
        };
        let line = format!(
            "{} {}: {:.3} Mpps offered{over}, {} % lost{p99}{}",
            event.case,
            event.kind,
            result.achieved_rate_pps / 1e6,
            loss_percent(result.loss_ratio, 4),
            if result.is_valid() { "" } else { ", INVALID" }
        );
        self.did(line, event.is_replayed);
    }

    fn action(&mut self, event: &ActionEvent<'_>) {
        self.state.action(event);
        let line = format!(
            "{} {}: {}",
            event.case,
            event.kind,
            state::describe_action(event)
        );
        self.did(line, event.is_replayed);
    }

    fn step_done(&mut self, case: &str, _frame_size: FrameSize, kind: &StepKind) {
        self.state.step_done(case, kind);
    }
}
