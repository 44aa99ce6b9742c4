// SPDX-License-Identifier: Apache-2.0
//! The running switch as its control thread holds it: ports by number, forwarding threads by CPU, tables; and how a
//! changed plan is carried out, whole or not at all, while frames go on.

mod apply;
mod assign;
mod balance;
mod moves;
mod slot;
mod threads;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use quietwire_dpdk::Eal;

use crate::bridge_view::BridgeView;
use crate::config::{Group, Plan};
use crate::counters::ThreadCounters;
use crate::error::SwitchError;
use crate::fdb::Fdb;
use crate::forward::{Shared, Stage};

pub use balance::Rules;
pub(crate) use moves::Moved;
pub(crate) use slot::Slot;
pub(crate) use threads::Forwarder;

/// Everything that the control thread holds.
// Fields are dropped in this order: threads before the ports whose queues they hold.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) forwarders: Vec<Forwarder>,
    /// By number of the port.
    pub(crate) slots: Vec<Option<Slot>>,
    pub(crate) bridges: Vec<BridgeView>,
    pub(crate) plan: Plan,
    /// What threads counted that have ended.
    pub(crate) gone: ThreadCounters,
    pub(crate) shared: Arc<Shared>,
    pub(crate) started: Instant,
    pub(crate) moved: Vec<Moved>,
    loads: moves::Loads,
    pools: u32,
    eal: Eal,
}

impl Engine {
    /// Opens the ports of a plan, starts its threads and forwards.
    ///
    /// # Errors
    /// What is wrong with a port or the machine; everything is given back then.
    pub(crate) fn start(eal: &Eal, plan: &Plan, shared: &Arc<Shared>) -> Result<Self, SwitchError> {
        let mut engine = Self {
            forwarders: Vec::new(),
            slots: (0..crate::counters::PORTS_MAX).map(|_| None).collect(),
            bridges: Vec::new(),
            plan: plan.without_work(),
            gone: ThreadCounters::new(),
            shared: Arc::clone(shared),
            started: Instant::now(),
            moved: Vec::new(),
            loads: moves::Loads::default(),
            pools: 0,
            eal: eal.clone(),
        };
        engine.apply(plan.clone())?;
        Ok(engine)
    }

    /// The number of a port.
    pub(crate) fn number(&self, name: &str) -> Option<u16> {
        let index = self
            .slots
            .iter()
            .position(|slot| slot.as_ref().is_some_and(|slot| slot.plan.name == name))?;
        u16::try_from(index).ok()
    }

    pub(crate) fn slot(&self, number: u16) -> Option<&Slot> {
        self.slots.get(usize::from(number))?.as_ref()
    }

    fn slot_mut(&mut self, number: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(number))?.as_mut()
    }

    /// Ports that there are, with their numbers.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (u16, &Slot)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(number, slot)| Some((number as u16, slot.as_ref()?)))
    }

    /// Numbers of the ports of a group.
    pub(crate) fn members(&self, group: &Group) -> Vec<u16> {
        let number = |index: &usize| self.number(&self.plan.ports.get(*index)?.name);
        group.ports().iter().filter_map(number).collect()
    }

    /// The group that a port is in.
    pub(crate) fn group_of(&self, name: &str) -> Option<&Group> {
        let index = self.plan.ports.iter().position(|port| port.name == name)?;
        self.plan
            .groups
            .iter()
            .find(|group| group.ports().contains(&index))
    }

    /// Bridges of a plan: those that are there already keep their addresses.
    fn bridges_of(&self, plan: &Plan) -> Vec<BridgeView> {
        let view = |group: &Group| {
            let Group::Bridge(bridge) = group else {
                return None;
            };
            let kept = self.bridges.iter().find(|view| {
                view.name == bridge.name
                    && view.fdb.entries_max() == bridge.max_entries
                    && view.ageing_s == bridge.ageing_s
            });
            Some(kept.cloned().unwrap_or_else(|| BridgeView {
                name: bridge.name.clone(),
                fdb: Arc::new(Fdb::new(bridge.max_entries, bridge.ageing_s)),
                ageing_s: bridge.ageing_s,
                aged: Arc::new(AtomicU64::new(0)),
            }))
        };
        plan.groups.iter().filter_map(view).collect()
    }

    /// What is to be done with the frames of a port.
    fn stage_of(&self, number: u16) -> Stage {
        let Some(slot) = self.slot(number) else {
            return Stage::Drop;
        };
        let Some(group) = self.group_of(&slot.plan.name) else {
            return Stage::Drop;
        };
        let others: Vec<usize> = self
            .members(group)
            .into_iter()
            .filter(|other| *other != number)
            .map(usize::from)
            .collect();
        match group {
            Group::CrossConnect(_) => match others.as_slice() {
                [output] => Stage::CrossConnect { output: *output },
                _ => Stage::Drop,
            },
            Group::Bridge(plan) => match self.bridges.iter().find(|view| view.name == plan.name) {
                Some(view) => Stage::Bridge {
                    fdb: Arc::clone(&view.fdb),
                    others,
                },
                None => Stage::Drop,
            },
        }
    }
}
