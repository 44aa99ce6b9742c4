// SPDX-License-Identifier: Apache-2.0
//! Tables of connections of forwarding threads, as connection tracking begins, changes and ends.

use std::sync::Arc;

use quietwire_tables::share::Share;

use super::Engine;
use super::apply::Tally;
use super::connections::connection_stage;
use super::maker::step;
use super::threads::Forwarder;
use crate::config::connections::ConnectionsSetting;
use crate::error::SwitchError;
use crate::forward::WorkerCommand;

impl Engine {
    /// Gives all threads a table of connections, if the plan has connection tracking. A thread that has a table gets its timeouts and limits.
    pub(super) fn give_connections(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        let Some(setting) = self.plan.connections.clone() else {
            return Ok(());
        };
        for cpu in self.cpus() {
            let known = self.tracking_of(cpu);
            let (has_table, has_limits) = (known.is_some(), known == Some(&setting));
            if !has_table {
                tally.note(self.order_table(cpu))?;
            } else if !has_limits {
                tally.note(self.order_limits(cpu, &setting))?;
            }
        }
        Ok(())
    }

    /// Frees the tables of connections, if the plan has no connection tracking. The threads must not have rules that require connections.
    pub(super) fn free_connections(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        if self.plan.connections.is_some() {
            return Ok(());
        }
        for cpu in self.cpus() {
            if self.tracking_of(cpu).is_some() {
                tally.note(self.order_table(cpu))?;
            }
        }
        Ok(())
    }

    /// Returns the settings of the table of a thread, if it has one.
    fn tracking_of(&self, cpu: u32) -> Option<&ConnectionsSetting> {
        let mut forwarders = self.forwarders.iter();
        forwarders.find(|one| one.cpu == cpu)?.connections.as_ref()
    }

    /// Gives a thread an empty table, or none, as the plan says.
    fn order_table(&mut self, cpu: u32) -> Result<(), SwitchError> {
        let maker = Arc::clone(&self.maker);
        let made = step(&*maker, "connection table", || {
            connection_stage(&self.plan, self.share_of_thread(cpu))
        })?;
        let setting = self.plan.connections.clone();
        let record = |forwarder: &mut Forwarder| forwarder.connections = setting;
        // The former table is freed here.
        self.send_and_record(cpu, WorkerCommand::Track(made), record)
            .map(drop)
    }

    /// Sets timeouts and limits of the table of a thread. The others of its settings cannot change.
    fn order_limits(&mut self, cpu: u32, setting: &ConnectionsSetting) -> Result<(), SwitchError> {
        let share = self.share_of_thread(cpu).unwrap_or(Share::WHOLE);
        let half_open_max = setting.max_half_open.map(|limit| share.part(limit));
        let order = WorkerCommand::ConnectionLimits {
            timeouts: setting.tracker().timeouts,
            half_open_max: half_open_max.unwrap_or(u32::MAX),
            new_share: setting.new_share(),
        };
        let setting = setting.clone();
        let record = |forwarder: &mut Forwarder| forwarder.connections = Some(setting);
        self.send_and_record(cpu, order, record).map(drop)
    }
}
