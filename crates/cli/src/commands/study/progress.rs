// SPDX-License-Identifier: Apache-2.0
//! What a running study shows: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use quietwire_study::{CaseSpec, Estimate, FrameSize, Progress, StudyFile, TrialEvent};

use crate::text::say;

/// Shows how a study goes, on standard error.
pub(crate) struct Shown {
    bar: Option<ProgressBar>,
}

impl Shown {
    pub(crate) fn new(file: &StudyFile) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(u64::from(Estimate::of(file).trials));
            // The template is a constant: were it wrong, the plain bar would do.
            if let Ok(style) = ProgressStyle::with_template(
                "{elapsed_precise} {bar:30} {pos} of about {len} trials\n{wide_msg}",
            ) {
                bar.set_style(style);
            }
            bar
        });
        Self { bar }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => say(line),
        }
    }
}

impl Progress for Shown {
    fn entering(&mut self, case: &CaseSpec) {
        self.say(&format!(
            "case {}, round {}",
            case.case.name,
            case.round + 1
        ));
    }

    fn max_rate(&mut self, _frame_size: FrameSize, max_rate_pps: f64) {
        self.say(&format!(
            "100 % of the load is {:.3} Mpps",
            max_rate_pps / 1e6
        ));
    }

    fn trial(&mut self, event: &TrialEvent<'_>) {
        let result = event.result;
        let cited = result.calibration.as_ref();
        let over = if cited.is_some_and(|cited| cited.is_exceeded) {
            " (more than the tester was calibrated for)"
        } else {
            ""
        };
        let p99 = result
            .latency
            .p99_ns
            .map_or_else(String::new, |ns| format!(", p99 {:.1} us", ns as f64 / 1e3));
        let line = format!(
            "{} {}: {:.3} Mpps offered{over}, {:.4} % lost{p99}{}",
            event.case,
            event.kind,
            result.trial.offered_rate_pps / 1e6,
            result.loss_ratio * 100.0,
            if result.is_valid() { "" } else { ", INVALID" }
        );
        match &self.bar {
            Some(bar) => {
                bar.inc(1);
                bar.set_message(line);
            }
            None if event.is_replayed => {}
            None => say(line),
        }
    }
}
