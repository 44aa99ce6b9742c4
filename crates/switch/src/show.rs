// SPDX-License-Identifier: Apache-2.0
//! Answers to what is asked on the control socket, read from counters and tables while they change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use quietwire_dpdk::PortHandle;
use serde::Serialize;

use crate::config::{Group, Plan};
use crate::control::{Answer, Subject};
use crate::counters::{Counter, PortCounters, ThreadCounters};
use crate::fdb::Fdb;
use crate::forward::Shared;
use crate::queues;
use crate::report::{
    BridgeCounts, Drops, FdbReport, PortCounts, PortReport, StatsReport, ThreadCounts,
};
use crate::threads;

/// A bridge as the control thread sees it.
#[derive(Clone, Debug)]
pub(crate) struct BridgeView {
    pub(crate) name: String,
    pub(crate) ports: Vec<usize>,
    pub(crate) fdb: Arc<Fdb>,
    pub(crate) aged: Arc<AtomicU64>,
}

/// A counter of a driver's, which may begin at 0 again when its peer is replaced, made one that only grows.
#[derive(Clone, Copy, Debug, Default)]
struct Growing {
    total: u64,
    last: u64,
}

impl Growing {
    fn update(&mut self, seen: u64) -> u64 {
        self.total += seen.checked_sub(self.last).unwrap_or(seen);
        self.last = seen;
        self.total
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct DriverDrops {
    no_buffers: Growing,
    rx_missed: Growing,
    rx_errors: Growing,
}

/// Everything that answers are made from.
#[derive(Debug)]
pub(crate) struct Show {
    pub(crate) plan: Plan,
    pub(crate) handles: Vec<PortHandle>,
    pub(crate) threads: Vec<Arc<ThreadCounters>>,
    pub(crate) bridges: Vec<BridgeView>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) started: Instant,
    drivers: BTreeMap<usize, DriverDrops>,
}

impl Show {
    pub(crate) fn new(
        plan: &Plan,
        handles: Vec<PortHandle>,
        threads: Vec<Arc<ThreadCounters>>,
        bridges: Vec<BridgeView>,
        shared: Arc<Shared>,
        started: Instant,
    ) -> Self {
        Self {
            plan: plan.clone(),
            handles,
            threads,
            bridges,
            shared,
            started,
            drivers: BTreeMap::new(),
        }
    }

    pub(crate) fn answer(&mut self, subject: Subject) -> Answer {
        match subject {
            Subject::Ports => to_answer(&self.ports()),
            Subject::Fdb => to_answer(&self.fdb()),
            Subject::Threads => match threads::list() {
                Ok(threads) => to_answer(&threads),
                Err(error) => Answer::Error(error.to_string()),
            },
            Subject::Stats => to_answer(&self.stats()),
        }
    }

    fn ports(&mut self) -> Vec<PortReport> {
        let counts = self.port_counts();
        let groups = queues::groups(&self.plan);
        let mut reports = Vec::new();
        for ((handle, counts), group) in self.handles.iter().zip(counts).zip(groups) {
            reports.push(PortReport {
                uri: handle.uri().to_string(),
                group: match group {
                    Some(Group::Bridge(bridge)) => bridge.name.clone(),
                    _ => "cross-connect".to_owned(),
                },
                link_up: handle.link_is_up(),
                counts,
            });
        }
        reports
    }

    fn port_counts(&mut self) -> Vec<PortCounts> {
        let mut all = Vec::new();
        for (port, handle) in self.handles.iter().enumerate() {
            let sum = |counter| sum(&self.threads, port, counter);
            let driver = handle.stats();
            let growing = self.drivers.entry(port).or_default();
            all.push(PortCounts {
                name: handle.name().to_owned(),
                rx_frames: sum(|c| &c.rx_frames),
                rx_octets: sum(|c| &c.rx_octets),
                tx_frames: sum(|c| &c.tx_frames),
                tx_octets: sum(|c| &c.tx_octets),
                drops: Drops {
                    short: sum(|c| &c.short),
                    filtered: sum(|c| &c.filtered),
                    reserved_address: sum(|c| &c.reserved),
                    no_output: sum(|c| &c.no_output),
                    tx_full: sum(|c| &c.tx_full),
                    no_buffers: growing.no_buffers.update(driver.rx_no_buffers),
                    rx_missed: growing.rx_missed.update(driver.rx_missed),
                    rx_errors: growing.rx_errors.update(driver.rx_errors),
                },
            });
        }
        all
    }

    fn fdb(&self) -> Vec<FdbReport> {
        let now_s = self.shared.now_s.load(Ordering::Relaxed);
        let mut entries = Vec::new();
        for bridge in &self.bridges {
            entries.extend(bridge.fdb.snapshot(now_s).map(|entry| {
                FdbReport {
                    bridge: bridge.name.clone(),
                    mac: entry.address,
                    port: self
                        .plan
                        .ports
                        .get(usize::from(entry.port))
                        .map_or_else(|| entry.port.to_string(), |port| port.name.clone()),
                    age_s: entry.age_s,
                }
            }));
        }
        entries
    }

    fn stats(&mut self) -> StatsReport {
        StatsReport {
            uptime_s: self.started.elapsed().as_secs_f64(),
            ports: self.port_counts(),
            threads: self
                .plan
                .forwarding_cpus
                .iter()
                .zip(&self.threads)
                .map(|(cpu, counters)| thread_counts(cpu.0, counters))
                .collect(),
            bridges: self
                .bridges
                .iter()
                .map(|bridge| self.bridge_counts(bridge))
                .collect(),
        }
    }

    fn bridge_counts(&self, bridge: &BridgeView) -> BridgeCounts {
        let sum = |counter| -> u64 {
            bridge
                .ports
                .iter()
                .map(|port| sum(&self.threads, *port, counter))
                .sum()
        };
        BridgeCounts {
            name: bridge.name.clone(),
            entries: bridge.fdb.entries(),
            max_entries: bridge.fdb.entries_max(),
            flooded: sum(|c| &c.flooded),
            learned: sum(|c| &c.learned),
            moved: sum(|c| &c.moved),
            not_learned: sum(|c| &c.not_learned),
            aged: bridge.aged.load(Ordering::Relaxed),
        }
    }
}

fn sum(
    threads: &[Arc<ThreadCounters>],
    port: usize,
    counter: fn(&PortCounters) -> &Counter,
) -> u64 {
    let counts = threads.iter().filter_map(|thread| thread.ports.get(port));
    counts.map(|port| counter(port).get()).sum()
}

fn thread_counts(cpu: u32, counters: &ThreadCounters) -> ThreadCounts {
    // Read in this order, the second is never larger than the first.
    let empty_polls = counters.empty_polls.get();
    let polls = counters.polls.get().max(empty_polls);
    ThreadCounts {
        cpu,
        polls,
        empty_polls,
        bursts: polls - empty_polls,
        yields: counters.yields.get(),
        rx_frames: counters.ports.iter().map(|port| port.rx_frames.get()).sum(),
        tx_frames: counters.ports.iter().map(|port| port.tx_frames.get()).sum(),
    }
}

fn to_answer(report: &impl Serialize) -> Answer {
    match serde_json::to_value(report) {
        Ok(value) => Answer::Ok(value),
        Err(error) => Answer::Error(format!("the answer could not be written: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_again_still_grows() {
        let mut growing = Growing::default();
        let seen: Vec<u64> = [3, 5, 5, 0, 2, 1]
            .into_iter()
            .map(|n| growing.update(n))
            .collect();
        assert_eq!(seen, [3, 5, 5, 5, 7, 8]);
    }
}
