// SPDX-License-Identifier: Apache-2.0
//! A running switch, through its control socket: ports, load of forwarding CPUs, cycles by step, drops by reason, connections. Rates are
//! those since the sample before, which is at least a second older.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quietwire_switch::config::connections::ConnectionSelection;
use quietwire_switch::control::{Request, Subject, ask};
use quietwire_switch::report::{ConnectionsReport, PortReport, StatsReport, ThreadCounts};
use serde::Serialize;

/// Shortest time between two samples.
const INTERVAL: Duration = Duration::from_secs(1);
/// Age of a sample from which on rates would be means over a long time.
const AGE_MAX: Duration = Duration::from_secs(10);

/// Name of the step of empty polls ([`quietwire_switch::report::StepCounts`]).
const IDLE: &str = "idle";

/// View of a switch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SwitchView {
    /// Time since its start, seconds.
    pub(crate) uptime_s: f64,
    /// Time to which rates and loads refer, seconds. None in the first sample, which has none.
    pub(crate) interval_s: Option<f64>,
    /// Ports.
    pub(crate) ports: Vec<PortView>,
    /// Forwarding threads.
    pub(crate) threads: Vec<ThreadView>,
    /// Tracked connections; none if they are unavailable.
    pub(crate) connections: Option<ConnectionsView>,
    /// Why connections are unavailable: for example, the switch tracks none.
    pub(crate) connections_unavailable: Option<String>,
}

/// View of the connection table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ConnectionsView {
    /// Connections, including expired ones that are not yet removed.
    pub(crate) total: u64,
    pub(crate) max_entries: u64,
    /// New connections per second.
    pub(crate) created_per_s: Option<f64>,
    /// Refused connections by reason.
    pub(crate) refused: BTreeMap<String, u64>,
    /// Connections dropped early, in favour of new ones.
    pub(crate) dropped_early: u64,
}

/// View of a port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PortView {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) state: String,
    pub(crate) link_up: bool,
    pub(crate) rx_frames: u64,
    pub(crate) tx_frames: u64,
    pub(crate) rx_pps: Option<f64>,
    pub(crate) tx_pps: Option<f64>,
    /// Dropped frames by reason, without reasons that did not occur.
    pub(crate) drops: BTreeMap<String, DropView>,
}

/// Frames dropped for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct DropView {
    pub(crate) frames: u64,
    pub(crate) pps: Option<f64>,
}

/// View of a forwarding thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ThreadView {
    pub(crate) cpu: u32,
    /// Share of the time that it did not spend on empty polls, 0 to 1.
    pub(crate) load: Option<f64>,
    pub(crate) rx_pps: Option<f64>,
    pub(crate) tx_pps: Option<f64>,
    /// Steps in the order in which a frame passes them.
    pub(crate) steps: Vec<StepView>,
}

/// View of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct StepView {
    pub(crate) step: String,
    /// Share of the thread's time, 0 to 1.
    pub(crate) share: Option<f64>,
    /// Ticks of the time stamp counter per frame of the step.
    pub(crate) cycles_per_frame: Option<f64>,
}

/// Counters of a switch at an instant.
#[derive(Clone, Debug)]
struct Counters {
    taken: Instant,
    ports: Vec<PortReport>,
    stats: StatsReport,
    /// The connection table, or why it is unavailable.
    connections: Result<ConnectionsReport, String>,
}

/// Result of the latest reading of a switch.
#[derive(Debug, Default)]
enum Latest {
    #[default]
    None,
    Sample(Box<(Counters, SwitchView)>),
    /// Time and reason of a failure.
    Failure(Instant, String),
}

/// Samples a switch.
#[derive(Debug)]
pub(crate) struct SwitchSampler {
    socket: PathBuf,
    latest: Mutex<Latest>,
}

impl SwitchSampler {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            latest: Mutex::default(),
        }
    }

    /// Returns the view, which is at most a second old.
    ///
    /// # Errors
    /// Why the switch does not reply.
    pub(crate) fn view(&self) -> Result<SwitchView, String> {
        self.view_by(|| self.read())
    }

    fn read(&self) -> Result<Counters, String> {
        let show = |subject| Request::Show(subject);
        let failed = |error: quietwire_switch::SwitchError| error.to_string();
        Ok(Counters {
            stats: ask(&self.socket, &show(Subject::Stats)).map_err(failed)?,
            ports: ask(&self.socket, &show(Subject::Ports)).map_err(failed)?,
            connections: ask(&self.socket, &connections()).map_err(failed),
            taken: Instant::now(),
        })
    }

    /// As [`Self::view`], with a function that reads the switch.
    fn view_by(
        &self,
        read: impl FnOnce() -> Result<Counters, String>,
    ) -> Result<SwitchView, String> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match std::mem::take(&mut *latest) {
            // A switch that hangs takes as long as its timeout. Clients that have waited meanwhile get the same failure.
            Latest::Failure(at, reason) if at.elapsed() < INTERVAL => {
                *latest = Latest::Failure(at, reason.clone());
                return Err(reason);
            }
            Latest::Sample(sample) if sample.0.taken.elapsed() < INTERVAL => {
                let view = sample.1.clone();
                *latest = Latest::Sample(sample);
                return Ok(view);
            }
            Latest::Sample(sample) if sample.0.taken.elapsed() < AGE_MAX => Some(sample),
            _ => None,
        };
        let now = read().inspect_err(|reason| {
            *latest = Latest::Failure(Instant::now(), reason.clone());
        })?;
        let view = view(before.as_ref().map(|sample| &sample.0), &now);
        *latest = Latest::Sample(Box::new((now, view.clone())));
        Ok(view)
    }
}

/// Returns the request for the totals of the connection table.
fn connections() -> Request {
    Request::ShowConnections {
        selection: ConnectionSelection::default(),
        limit: 1,
        from: 0,
    }
}

fn view(before: Option<&Counters>, now: &Counters) -> SwitchView {
    // A switch that restarted counts from zero.
    let before = before.filter(|then| then.stats.uptime_s <= now.stats.uptime_s);
    let interval_s = before.map(|then| now.taken.duration_since(then.taken).as_secs_f64());
    let rate = |then: Option<u64>, now: u64| {
        let increase = now.checked_sub(then?)?;
        interval_s
            .filter(|interval_s| *interval_s > 0.0)
            .map(|interval_s| increase as f64 / interval_s)
    };
    let ports = now.ports.iter().map(|port| {
        let counts = &port.counts;
        let mut then = before.iter().flat_map(|then| &then.ports);
        let then = then.find(|then| then.counts.name == counts.name);
        let then = then.map(|then| &then.counts);
        let drops = counts.drops.iter().filter(|(_, frames)| *frames > 0);
        let drops = drops.map(|(reason, frames)| {
            let of_reason = |(other, _): &(_, u64)| *other == reason;
            let then = then.and_then(|then| then.drops.iter().find(of_reason));
            let pps = rate(then.map(|(_, frames)| frames), frames);
            (reason.text().to_owned(), DropView { frames, pps })
        });
        PortView {
            name: counts.name.clone(),
            group: port.group.clone(),
            state: port.state.clone(),
            link_up: port.link_up,
            rx_frames: counts.rx_frames,
            tx_frames: counts.tx_frames,
            rx_pps: rate(then.map(|then| then.rx_frames), counts.rx_frames),
            tx_pps: rate(then.map(|then| then.tx_frames), counts.tx_frames),
            drops: drops.collect(),
        }
    });
    let threads = now.stats.threads.iter().map(|thread| {
        let mut then = before.iter().flat_map(|then| &then.stats.threads);
        let then = then.find(|then| then.cpu == thread.cpu);
        let steps = then.map(|then| steps(then, thread));
        let idle = steps.as_ref().and_then(|steps| {
            let mut steps = steps.iter();
            steps.find(|step| step.step == IDLE)?.share
        });
        ThreadView {
            cpu: thread.cpu,
            load: idle.map(|idle| 1.0 - idle),
            rx_pps: rate(then.map(|then| then.rx_frames), thread.rx_frames),
            tx_pps: rate(then.map(|then| then.tx_frames), thread.tx_frames),
            steps: steps.unwrap_or_default(),
        }
    });
    let of_table = |counters: &Counters| counters.connections.clone().ok();
    let tracked = of_table(now).map(|table| {
        let then = before.and_then(of_table);
        ConnectionsView {
            total: table.total,
            max_entries: table.max_entries,
            created_per_s: rate(
                then.map(|then| then.counters.created),
                table.counters.created,
            ),
            refused: table.counters.refused,
            dropped_early: table.counters.dropped_early,
        }
    });
    SwitchView {
        uptime_s: now.stats.uptime_s,
        interval_s,
        ports: ports.collect(),
        threads: threads.collect(),
        connections: tracked,
        connections_unavailable: now.connections.as_ref().err().cloned(),
    }
}

/// Returns the steps of a thread between two samples.
fn steps(then: &ThreadCounts, now: &ThreadCounts) -> Vec<StepView> {
    let increases: Vec<(u64, u64)> = now
        .steps
        .iter()
        .map(|step| {
            let mut before = then.steps.iter();
            let before = before.find(|before| before.step == step.step);
            let of = |now: u64, then: Option<u64>| now.saturating_sub(then.unwrap_or(0));
            (
                of(step.cycles, before.map(|before| before.cycles)),
                of(step.frames, before.map(|before| before.frames)),
            )
        })
        .collect();
    let all: u64 = increases.iter().map(|(cycles, _)| cycles).sum();
    let part = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let steps = now.steps.iter().zip(&increases);
    steps
        .map(|(step, (cycles, frames))| StepView {
            step: step.step.clone(),
            share: part(*cycles, all),
            cycles_per_frame: part(*cycles, *frames),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use quietwire_switch::report::{
        ConnectionCounters, PortCounts, PortDrop, PortDrops, StepCounts,
    };

    use super::*;
    use crate::tests::assert_schema;

    fn counters(taken: Instant, uptime_s: f64, frames: u64) -> Counters {
        let counts = PortCounts {
            name: "left".to_owned(),
            rx_frames: frames,
            drops: PortDrops::of(|reason| {
                if reason == PortDrop::ALL[0] {
                    frames / 10
                } else {
                    0
                }
            }),
            ..PortCounts::default()
        };
        let step = |name: &str, cycles, frames| StepCounts {
            step: name.to_owned(),
            cycles,
            bursts: 1,
            frames,
        };
        let thread = ThreadCounts {
            cpu: 3,
            rx_frames: frames,
            steps: vec![
                step("idle", 1000 * frames, 0),
                step("receive", 3000 * frames, 10 * frames),
            ],
            ..ThreadCounts::default()
        };
        Counters {
            taken,
            ports: vec![PortReport {
                counts,
                ..PortReport::default()
            }],
            stats: StatsReport {
                uptime_s,
                threads: vec![thread],
                ..StatsReport::default()
            },
            connections: Ok(ConnectionsReport {
                connections: Vec::new(),
                next: None,
                total: frames / 2,
                half_open: 0,
                max_entries: 1000,
                octets: 4096,
                counters: ConnectionCounters {
                    created: frames,
                    ..ConnectionCounters::default()
                },
            }),
        }
    }

    #[test]
    fn rates_loads_and_costs_are_those_between_two_samples() {
        let start = Instant::now();
        let before = counters(start, 10.0, 100);
        let now = counters(start + Duration::from_secs(2), 12.0, 300);
        let first = view(None, &before);
        assert_eq!(
            (
                first.interval_s,
                first.ports[0].rx_pps,
                first.threads[0].load
            ),
            (None, None, None)
        );
        let second = view(Some(&before), &now);
        assert_eq!(second.interval_s, Some(2.0));
        let port = &second.ports[0];
        assert_eq!(
            (port.rx_frames, port.rx_pps, port.tx_pps),
            (300, Some(100.0), Some(0.0))
        );
        assert_eq!(port.drops.len(), 1);
        let drops = port.drops.values().next().unwrap();
        assert_eq!((drops.frames, drops.pps), (30, Some(10.0)));
        let thread = &second.threads[0];
        assert_eq!((thread.cpu, thread.load), (3, Some(0.75)));
        assert_eq!(thread.steps[1].cycles_per_frame, Some(300.0));
        assert_eq!(thread.steps[0].cycles_per_frame, None);
        let tracked = second.connections.as_ref().unwrap();
        assert_eq!((tracked.total, tracked.created_per_s), (150, Some(100.0)));
        // A switch that tracks no connections.
        let none = Counters {
            connections: Err("no connections are tracked".to_owned()),
            ..now.clone()
        };
        let without = view(Some(&before), &none);
        assert!(without.connections.is_none() && without.connections_unavailable.is_some());
        assert_schema("Switch", &without);
        // After a restart there are no rates.
        let restarted = counters(start + Duration::from_secs(3), 1.0, 50);
        assert_eq!(view(Some(&now), &restarted).interval_s, None);
        assert_schema("Switch", &first);
        assert_schema("Switch", &second);
    }

    #[test]
    fn clients_that_waited_for_a_switch_that_hangs_get_one_failure() {
        let sampler = SwitchSampler::new(PathBuf::from("/nonexistent/switch.sock"));
        let failure = sampler.view_by(|| Err("no reply".to_owned()));
        assert_eq!(failure, Err("no reply".to_owned()));
        let again = sampler.view_by(|| panic!("the switch is read again"));
        assert_eq!(again, failure);
        *sampler.latest.lock().unwrap() = Latest::None;
        let sample = counters(Instant::now(), 10.0, 100);
        assert!(sampler.view_by(|| Ok(sample)).is_ok());
        assert!(sampler.view_by(|| panic!("the sample is fresh")).is_ok());
    }

    #[test]
    fn an_absent_switch_is_an_error() {
        let sampler = SwitchSampler::new(PathBuf::from("/nonexistent/switch.sock"));
        let error = sampler.view().unwrap_err();
        assert!(error.contains("no switch is listening"), "{error}");
    }
}
