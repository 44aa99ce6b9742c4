// SPDX-License-Identifier: Apache-2.0
//! Load-based moves of receive queues between threads, and their log.

use std::collections::BTreeMap;
use std::time::Instant;

use quietwire_dpdk::cycles;

use super::Engine;
use super::assign::QueueId;
use super::balance::{self, Load, Loads, Move, Part};
use crate::config::rebalance::Rules;
use crate::error::SwitchError;
use crate::report::{MoveReport, QueueReport};

/// Maximum number of moves in the log.
const REMEMBERED: usize = 256;

/// Returns the error of a request about queues.
fn wrong(what: String) -> SwitchError {
    SwitchError::Config {
        location: "queue".to_owned(),
        what,
    }
}

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
            let report = self.report(
                one.id,
                (one.from, one.to),
                one.part,
                &one.reason.to_string(),
            );
            if !dry_run && self.carry_out(&one)? {
                self.remember(report.clone());
            }
            reports.push(report);
        }
        Ok(reports)
    }

    /// Returns false if the queue is there already.
    fn carry_out(&mut self, one: &Move) -> Result<bool, SwitchError> {
        match one.part {
            None => self.move_queue(one.id, one.to),
            Some(part) => self.move_entries(one.id, part),
        }
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
        let number = self.number_of_port(port)?;
        let from = self.server(number, queue)?;
        if !self.forwarders.iter().any(|one| one.cpu == cpu) {
            return Err(wrong(format!(
                "no forwarding thread on CPU {cpu} (forwarding CPUs: {})",
                self.plan.forwarding_cpus
            )));
        }
        self.settle()?;
        let report = self.report((number, queue), (from, cpu), None, "by request");
        if self.move_queue((number, queue), cpu)? {
            self.remember(report.clone());
        }
        Ok(report)
    }

    /// Moves entries of a card's redirection table from one of its queues to another on request.
    ///
    /// # Errors
    /// [`SwitchError::Config`] if a queue does not exist, or fewer entries select the first one; those of [`Self::move_entries`].
    pub(crate) fn move_entries_by_hand(
        &mut self,
        port: &str,
        queue: u16,
        part: Part,
    ) -> Result<MoveReport, SwitchError> {
        let number = self.number_of_port(port)?;
        let cpus = (
            self.server(number, queue)?,
            self.server(number, part.to_queue)?,
        );
        if queue == part.to_queue || part.entries == 0 {
            return Err(wrong(
                "give another queue, and at least one entry".to_owned(),
            ));
        }
        let entries = self.entries_of(number);
        match entries.get(&queue) {
            _ if entries.is_empty() => {
                return Err(wrong(format!(
                    "port '{port}' has no redirection table: its queues take turns, or its card selects them in another way"
                )));
            }
            Some(count) if *count >= part.entries => {}
            count => {
                return Err(wrong(format!(
                    "{} entries of the redirection table of port '{port}' select queue {queue} (see `quietwire switch show queues`)",
                    count.copied().unwrap_or_default()
                )));
            }
        }
        self.settle()?;
        let report = self.report((number, queue), cpus, Some(part), "by request");
        if self.move_entries((number, queue), part)? {
            self.remember(report.clone());
        }
        Ok(report)
    }

    /// Returns the number of a port of a request.
    fn number_of_port(&self, port: &str) -> Result<u16, SwitchError> {
        self.number(port)
            .ok_or_else(|| wrong(format!("no such port: '{port}'")))
    }

    /// Returns the CPU of the thread that serves a queue of a request.
    fn server(&self, port: u16, queue: u16) -> Result<u32, SwitchError> {
        self.cpu_of((port, queue)).ok_or_else(|| {
            let name = self.slot(port).map_or("", |slot| &slot.plan.name);
            wrong(format!("port '{name}' has no receive queue {queue}"))
        })
    }

    /// Returns how many entries of the redirection table of a port select each of its queues. Empty without a table.
    fn entries_of(&self, port: u16) -> BTreeMap<u16, u16> {
        let mut entries = BTreeMap::new();
        let slot = self.slot(port).filter(|slot| slot.queues.len() > 1);
        for queue in slot
            .map(|slot| slot.handle.redirection_table())
            .unwrap_or_default()
        {
            let count: &mut u16 = entries.entry(queue).or_default();
            *count = count.saturating_add(1);
        }
        entries
    }

    /// Returns the reports of all receive queues.
    pub(crate) fn queue_reports(&self) -> Vec<QueueReport> {
        let mut reports = Vec::new();
        for (port, slot) in self.ports() {
            let entries = self.entries_of(port);
            for (index, queue) in slot.queues.iter().enumerate() {
                let counters = &queue.counters;
                let sizes = counters.burst_sizes();
                reports.push(QueueReport {
                    port: slot.plan.name.clone(),
                    queue: queue.id.1,
                    cpu: self.server_of(queue),
                    is_mapped: slot.plan.cpu_of(index).is_some(),
                    load: self.loads.shares.get(&queue.id).copied(),
                    entries: (!entries.is_empty())
                        .then(|| entries.get(&queue.id.1).copied().unwrap_or_default()),
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
        for (port, slot) in self.ports() {
            let entries = self.entries_of(port);
            for (index, queue) in slot.queues.iter().enumerate() {
                if let Some(cpu) = self.server_of(queue) {
                    loads.push(Load {
                        id: queue.id,
                        cpu,
                        share: self.loads.shares.get(&queue.id).copied().unwrap_or(0.0),
                        is_mapped: slot.plan.cpu_of(index).is_some(),
                        entries: entries.get(&queue.id.1).copied().unwrap_or_default(),
                    });
                }
            }
        }
        loads
    }

    fn report(
        &self,
        id: QueueId,
        (from, to): (u32, u32),
        part: Option<Part>,
        why: &str,
    ) -> MoveReport {
        MoveReport {
            uptime_s: self.started.elapsed().as_secs_f64(),
            port: self
                .slot(id.0)
                .map_or_else(|| id.0.to_string(), |slot| slot.plan.name.clone()),
            queue: id.1,
            from,
            to,
            entries: part.map(|part| part.entries),
            to_queue: part.map(|part| part.to_queue),
            reason: why.to_owned(),
        }
    }

    fn remember(&mut self, report: MoveReport) {
        let what = match (report.entries, report.to_queue) {
            (Some(entries), Some(to)) => {
                format!(
                    "{entries} entries of the redirection table, from queue {} to queue {to}",
                    report.queue
                )
            }
            _ => format!("queue {}", report.queue),
        };
        tracing::info!(
            "moved {what} of port '{}' from CPU {} to CPU {}: {}",
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
