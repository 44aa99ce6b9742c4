// SPDX-License-Identifier: Apache-2.0
//! Application measurements, over all rounds.

use quietwire_study::{ApplicationResult, StepKind};
use serde::Serialize;

use super::spread::Spread;
use super::steps::{Steps, of_kind};

/// TCP throughput and round trips of an echo service in one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Applications {
    /// TCP from the first end to the second, bits per second of payload.
    pub tcp_up_bps: Spread,
    /// TCP from the second end to the first, bits per second of payload.
    pub tcp_down_bps: Spread,
    /// Mean round trip of the echo, nanoseconds.
    pub echo_mean_ns: Spread,
    /// Minimum round trip of the echo, nanoseconds.
    pub echo_min_ns: u64,
    /// Maximum round trip of the echo, nanoseconds.
    pub echo_max_ns: u64,
    /// 99th percentile of each round, nanoseconds; none if there are too few requests for it.
    pub echo_p99_ns: Option<Spread>,
}

/// Summarises the completed rounds.
pub(super) fn of_steps(steps: &Steps<'_>) -> Option<Applications> {
    let observed: Vec<&ApplicationResult> = of_kind(steps, &StepKind::Application)
        .filter_map(|step| step.application.as_ref())
        .collect();
    let spread =
        |of: fn(&ApplicationResult) -> f64| Spread::of(observed.iter().map(|it| of(it)).collect());
    let p99 = observed.iter().filter_map(|it| it.echo.p99_ns);
    Some(Applications {
        tcp_up_bps: spread(|it| it.up.received_bps)?,
        tcp_down_bps: spread(|it| it.down.received_bps)?,
        echo_mean_ns: spread(|it| it.echo.mean_ns)?,
        echo_min_ns: observed.iter().map(|it| it.echo.min_ns).min()?,
        echo_max_ns: observed.iter().map(|it| it.echo.max_ns).max()?,
        echo_p99_ns: Spread::of(p99.map(|ns| ns as f64).collect()),
    })
}
