// SPDX-License-Identifier: Apache-2.0
//! Load-based moves of receive queues between threads, and their log.

use std::collections::BTreeMap;
use std::time::Instant;

use quietwire_dpdk::cycles;

use super::Engine;
use super::assign::QueueId;
use super::balance::{self, Load, Loads};
use crate::config::rebalance::Rules;
use crate::error::SwitchError;
use crate::report::{MoveReport, QueueReport};

/// Maximum number of moves in the log.
const REMEMBERED: usize = 256;

impl Engine {
    /// Samples loads. A load covers the time since the previous sample. Called every few seconds.
    pub(crate) fn sample_loads(&mut self) {
        let now = Instant::now();
        let ticks = self
            .loads
            .at
            .map(|at| now.saturating_duration_since(at).as_secs_f64() * cycles::hz() as f64);
        let mut observed = BTreeMap::new();
        let mut shares = BTreeMap::new();
        for (_, slot) in self.ports() {
            for queue in &slot.queues {
                let cost = queue.counters.cycles.get();
                let before = self.loads.observed.get(&queue.id).copied().unwrap_or(cost);
                if let Some(ticks) = ticks.filter(|ticks| *ticks > 0.0) {
                    let share = cost.saturating_sub(before) as f64 / ticks;
                    shares.insert(queue.id, share.min(1.0));
                }
                observed.insert(queue.id, cost);
            }
        }
        self.loads = Loads {
            observed,
            shares,
            at: Some(now),
        };
    }

    /// Moves queues to lower the load of the busiest thread, or only reports the moves.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] if a thread does not reply.
    pub(crate) fn rebalance(
        &mut self,
        rules: &Rules,
        dry_run: bool,
    ) -> Result<Vec<MoveReport>, SwitchError> {
        if !dry_run {
            self.settle()?;
        }
        let cpus = self.cpus();
        let found = balance::balance(&self.loads(), &cpus, rules);
        let mut reports = Vec::new();
        for one in found {
            let report = self.report(one.id, one.from, one.to, &one.reason.to_string());
            if !dry_run && self.move_queue(one.id, one.to)? {
                self.remember(report.clone());
            }
            reports.push(report);
        }
        Ok(reports)
    }

    /// Moves one queue on request.
    ///
    /// # Errors
    /// [`SwitchError::Config`] if the queue or the thread does not exist.
    pub(crate) fn move_by_hand(
        &mut self,
        port: &str,
        queue: u16,
        cpu: u32,
    ) -> Result<MoveReport, SwitchError> {
        let wrong = |what: String| SwitchError::Config {
            location: "queue".to_owned(),
            what,
        };
        let number = self
            .number(port)
            .ok_or_else(|| wrong(format!("no such port: '{port}'")))?;
        let from = self
            .slot(number)
            .and_then(|slot| self.server_of(slot.queues.get(usize::from(queue))?))
            .ok_or_else(|| wrong(format!("port '{port}' has no receive queue {queue}")))?;
        if !self.forwarders.iter().any(|one| one.cpu == cpu) {
            return Err(wrong(format!(
                "no forwarding thread on CPU {cpu} (forwarding CPUs: {})",
                self.plan.forwarding_cpus
            )));
        }
        self.settle()?;
        let report = self.report((number, queue), from, cpu, "by request");
        if self.move_queue((number, queue), cpu)? {
            self.remember(report.clone());
        }
        Ok(report)
    }

    /// Returns the reports of all receive queues.
    pub(crate) fn queue_reports(&self) -> Vec<QueueReport> {
        let mut reports = Vec::new();
        for (_, slot) in self.ports() {
            for (index, queue) in slot.queues.iter().enumerate() {
                let counters = &queue.counters;
                let sizes = counters.burst_sizes();
                reports.push(QueueReport {
                    port: slot.plan.name.clone(),
                    queue: queue.id.1,
                    cpu: self.server_of(queue),
                    is_mapped: slot.plan.cpu_of(index).is_some(),
                    load: self.loads.shares.get(&queue.id).copied(),
                    bursts: sizes.iter().sum(),
                    burst_sizes: sizes,
                    frames: counters.frames.get(),
                    cycles: counters.cycles.get(),
                });
            }
        }
        reports
    }

    fn loads(&self) -> Vec<Load> {
        let mut loads = Vec::new();
        for (_, slot) in self.ports() {
            for (index, queue) in slot.queues.iter().enumerate() {
                if let Some(cpu) = self.server_of(queue) {
                    loads.push(Load {
                        id: queue.id,
                        cpu,
                        share: self.loads.shares.get(&queue.id).copied().unwrap_or(0.0),
                        is_mapped: slot.plan.cpu_of(index).is_some(),
                    });
                }
            }
        }
        loads
    }

    fn report(&self, id: QueueId, from: u32, to: u32, why: &str) -> MoveReport {
        MoveReport {
            uptime_s: self.started.elapsed().as_secs_f64(),
            port: self
                .slot(id.0)
                .map_or_else(|| id.0.to_string(), |slot| slot.plan.name.clone()),
            queue: id.1,
            from,
            to,
            reason: why.to_owned(),
        }
    }

    fn remember(&mut self, report: MoveReport) {
        tracing::info!(
            "moved queue {} of port '{}' from CPU {} to CPU {}: {}",
            report.queue,
            report.port,
            report.from,
            report.to,
            report.reason
        );
        if self.moved.len() == REMEMBERED {
            self.moved.remove(0);
        }
        self.moved.push(report);
    }
}
