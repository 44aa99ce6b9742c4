// SPDX-License-Identifier: Apache-2.0
//! `[application]`: TCP throughput and round trips of an echo service through the device.

mod plan;
pub(crate) mod result;

use quietwire_search::ConfigError;
use quietwire_tester::echo::{PAYLOAD_MAX, PAYLOAD_MIN};

use super::estimate::Estimate;
use super::machine::Machine;
use super::method::{Common, FoundBefore, Method, Offered, Planned, StudyContext, Work};
use super::step_kind::StepKind;
use crate::file::limits::{Checked, between};
use crate::file::locate::At::Key;

pub use plan::ApplicationPlan;

/// Maximum duration of each measurement, seconds.
const DURATION_S_MAX: u32 = 3600;
/// Maximum number of connections: the limit of iperf3.
const STREAMS_MAX: u32 = 128;

impl Method for ApplicationPlan {
    fn section(&self) -> &'static str {
        "application"
    }

    fn check(&self, _around: &StudyContext<'_>) -> Checked {
        let at = |key| [Key("application"), Key(key)];
        between(self.tcp_s, 1, DURATION_S_MAX, &at("tcp-s"))?;
        between(self.echo_s, 1, DURATION_S_MAX, &at("echo-s"))?;
        between(u32::from(self.streams), 1, STREAMS_MAX, &at("streams"))?;
        between(
            u32::from(self.payload),
            u32::from(PAYLOAD_MIN),
            u32::from(PAYLOAD_MAX),
            &at("payload"),
        )
    }

    fn steps(&self, _around: &StudyContext<'_>) -> Vec<Planned> {
        let duration_s = 2.0 * f64::from(self.tcp_s) + f64::from(self.echo_s);
        Planned::new(StepKind::Application, duration_s, *self)
    }

    fn shorten(&mut self) {
        self.tcp_s = 1;
        self.echo_s = 1;
    }
}

impl Work for ApplicationPlan {
    fn machine(&self, _common: &Common, _found: FoundBefore<'_>) -> Result<Machine, ConfigError> {
        Ok(Machine::Application(*self, None))
    }

    fn bound(&self, common: &Common) -> Estimate {
        Estimate {
            trials: 0,
            duration_s: common.duration_s,
        }
    }

    fn uses_max_rate(&self) -> bool {
        false
    }
}

impl Offered for ApplicationPlan {}
