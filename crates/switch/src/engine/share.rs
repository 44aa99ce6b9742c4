// SPDX-License-Identifier: Apache-2.0
//! Forwarding threads that share the state of connections: the owner of each packet, and rings between all threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use quietwire_dpdk::ring::{self, FrameReceiver, FrameSender};
use quietwire_tables::owner::Owners;
use quietwire_tables::share::Share;

use super::Engine;
use super::apply::Tally;
use super::threads::Forwarder;
use super::wiring::{ThreadShare, Wiring, share_of};
use crate::error::SwitchError;
use crate::forward::{PortStages, RING_FRAMES, ShareStage, Stage, WorkerCommand};

impl Engine {
    /// Returns the CPUs that share the state of connections, in ascending order: those of the plan, if there are several and state to
    /// share.
    pub(super) fn owner_cpus(&self) -> Vec<u32> {
        let plan = &self.plan;
        let has_state =
            plan.connections.is_some() || !plan.nats.is_empty() || !plan.load_balancers.is_empty();
        let cpus = plan.forwarding_cpus.iter().map(|cpu| cpu.0);
        if has_state && plan.forwarding_cpus.len() > 1 {
            cpus.collect()
        } else {
            Vec::new()
        }
    }

    /// Returns the share of a thread. `None` for one that is about to end.
    pub(super) fn share_of_thread(&self, cpu: u32) -> Option<Share> {
        share_of(&self.plan, cpu)
    }

    /// Returns the CPUs of threads that have a part in the sharing.
    pub(super) fn sharing_cpus(&self) -> Vec<u32> {
        let sharing = self.forwarders.iter();
        let sharing = sharing.filter(|one| one.share.owners.is_some());
        sharing.map(|one| one.cpu).collect()
    }

    /// Divides records among the forwarding CPUs that own them. `owner_of` returns the number of the owner. The first CPU has all if no state
    /// is shared.
    pub(super) fn by_owner_cpu<T>(
        &self,
        records: Vec<T>,
        owner_of: impl Fn(&Owners, &T) -> u16,
    ) -> BTreeMap<u32, Vec<T>> {
        let cpus = self.owner_cpus();
        let first = self.cpus().first().copied();
        let owners = self.owners();
        let mut lists: BTreeMap<u32, Vec<T>> = BTreeMap::new();
        for record in records {
            let owner = usize::from(owner_of(&owners, &record));
            if let Some(cpu) = cpus.get(owner).copied().or(first) {
                lists.entry(cpu).or_default().push(record);
            }
        }
        lists
    }

    /// Returns what determines the owner of each packet.
    pub(super) fn owners(&self) -> Owners {
        let count = u16::try_from(self.owner_cpus().len()).unwrap_or(u16::MAX);
        let mut owners = Owners::new(count.max(1));
        for place in self.nat_places(None) {
            let settings = &place.identity.settings;
            if let (Some(nat66), Some(ipv6)) = (&place.identity.nat66, &place.nat66) {
                owners.add_nat66(settings, nat66, &ipv6.forwards, &ipv6.sources);
                continue;
            }
            owners.add_nat(settings, &place.forwards, &place.sources);
            if let Some(nat64) = &place.identity.nat64 {
                owners.add_nat64(nat64.prefix);
            }
        }
        let interfaces = self.plan.layer3.interfaces.iter();
        for pair in interfaces.filter_map(|one| one.prefix_translation?.pair().ok()) {
            owners.add_prefix_pair(pair);
        }
        for setting in &self.plan.load_balancers {
            let table = setting.table();
            let backends = setting.backends.iter().map(|one| one.to);
            owners.add_balancer(table.protocol, backends.chain([table.endpoint]));
        }
        owners
    }

    /// Gives all threads their part in the sharing.
    pub(super) fn show_shares(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        let owner_cpus = self.owner_cpus();
        if owner_cpus.is_empty() && self.sharing_cpus().is_empty() {
            return Ok(());
        }
        let owners = Arc::new(self.owners());
        let number = self.wiring.number;
        let is_wired = self.wiring.owners == owner_cpus
            && self.forwarders.iter().all(|one| one.share.wiring == number);
        if is_wired {
            self.show_owners(&owners, tally)
        } else {
            self.wire(&owner_cpus, &owners, tally)
        }
    }

    /// Sends the owners of packets to all threads, if these have changed.
    fn show_owners(&mut self, owners: &Arc<Owners>, tally: &mut Tally) -> Result<(), SwitchError> {
        for cpu in self.cpus() {
            let mut forwarders = self.forwarders.iter();
            let known = forwarders.find(|one| one.cpu == cpu);
            let known = known.and_then(|one| one.share.owners.as_deref());
            if known == Some(&**owners) {
                continue;
            }
            let (order, number) = (
                WorkerCommand::Owners(Arc::clone(owners)),
                self.wiring.number,
            );
            tally.note(self.order_share(cpu, order, (owners, number)))?;
        }
        Ok(())
    }

    /// Connects all threads to the owners by new rings. Threads still read the former ones.
    fn wire(
        &mut self,
        owner_cpus: &[u32],
        owners: &Arc<Owners>,
        tally: &mut Tally,
    ) -> Result<(), SwitchError> {
        let threads = self.cpus();
        let mut senders: BTreeMap<u32, Vec<Option<FrameSender>>> = BTreeMap::new();
        let mut receivers: BTreeMap<u32, Vec<FrameReceiver>> = BTreeMap::new();
        for from in &threads {
            for to in owner_cpus {
                let mut sender = None;
                if from != to {
                    let bell = self.bell(*to);
                    let (writer, reader) = ring::channel_with_bell(&self.eal, RING_FRAMES, bell);
                    receivers.entry(*to).or_default().push(reader);
                    sender = Some(writer);
                }
                senders.entry(*from).or_default().push(sender);
            }
        }
        let stages: Vec<(u16, Arc<Stage>)> = self
            .ports()
            .map(|(port, slot)| (port, Arc::clone(&slot.stage)))
            .collect();
        // Before any order: a thread that executes the last one late has the new rings even if the change fails.
        let wiring = self.wiring.number.wrapping_add(1);
        self.wiring = Wiring {
            number: wiring,
            owners: owner_cpus.to_vec(),
        };
        for cpu in threads {
            let number = owner_cpus.iter().position(|one| *one == cpu);
            let number = number.and_then(|number| u16::try_from(number).ok());
            let share = ShareStage::new(
                &self.eal,
                (Arc::clone(owners), number),
                senders.remove(&cpu).unwrap_or_default(),
                receivers.remove(&cpu).unwrap_or_default(),
            );
            let order = WorkerCommand::Share {
                share: Box::new(share),
                stages: PortStages::new(stages.iter().cloned()),
            };
            tally.note(self.order_share(cpu, order, (owners, wiring)))?;
        }
        Ok(())
    }

    /// Sends an order about the sharing, and records the thread's resources after it.
    fn order_share(
        &mut self,
        cpu: u32,
        order: WorkerCommand,
        (owners, wiring): (&Arc<Owners>, u64),
    ) -> Result<(), SwitchError> {
        let record = |forwarder: &mut Forwarder| {
            forwarder.share = ThreadShare {
                wiring,
                owners: Some(Arc::clone(owners)),
            };
        };
        // The former part is dropped here.
        self.send_and_record(cpu, order, record).map(drop)
    }

    /// Makes all threads forget the stage of a port that is removed.
    pub(super) fn forget_stage(&mut self, port: u16) -> Result<(), SwitchError> {
        let sharing = self.sharing_cpus();
        if sharing.is_empty() {
            return Ok(());
        }
        let stage = Arc::new(Stage::Drop);
        for cpu in sharing {
            let stages = vec![(port, Arc::clone(&stage))];
            drop(self.send_command(cpu, WorkerCommand::Stages(stages))?);
        }
        let slot = self.slot(port).map(|slot| Arc::clone(&slot.stage));
        self.former_stages.extend(slot);
        self.former_stages.push(stage);
        Ok(())
    }
}
