// SPDX-License-Identifier: Apache-2.0
//! Traffic prepared before a trial.

use std::path::Path;
use std::sync::Arc;

use super::ports::number_of;
use crate::clock::ticks_per_second;
use crate::error::TesterError;
use crate::pacer::Times;
use crate::traffic::{Capture, Pattern, Program, Timing, Traffic};

/// Traffic description prepared for all ports.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(super) traffic: Traffic,
    pub(super) sizes: Vec<u16>,
    pub(crate) programs: Vec<Arc<Program>>,
    pub(crate) pattern: Option<Arc<Pattern>>,
    pub(crate) capture: Option<Arc<Capture>>,
}

impl Ready {
    pub(super) fn new(
        traffic: &Traffic,
        sizes: Vec<u16>,
        ports: usize,
    ) -> Result<Self, TesterError> {
        let capture = match &traffic.replay {
            Some(replay) => Some(Arc::new(Capture::read(Path::new(&replay.file))?)),
            None => None,
        };
        let ports = if capture.is_some() { 0 } else { ports };
        let program = |port| Program::new(traffic, &sizes, number_of(port)).map(Arc::new);
        let programs: Result<_, String> = (0..ports).map(program).collect();
        Ok(Self {
            programs: programs.map_err(TesterError::BadTrial)?,
            pattern: traffic
                .integrity
                .then(|| Arc::new(Pattern::new(traffic.seed))),
            traffic: traffic.clone(),
            sizes,
            capture,
        })
    }

    /// Returns the transmit times of the frames if a capture is replayed with its own timing.
    pub(crate) fn times(&self) -> Option<Arc<Times>> {
        let replay = self.traffic.replay.as_ref()?;
        let capture = self.capture.as_ref()?;
        (replay.timing == Timing::File).then(|| {
            Arc::new(Times::new(
                capture.times_ns(),
                capture.period_ns(),
                replay.speed.unwrap_or(1.0),
                ticks_per_second(),
            ))
        })
    }
}
