// SPDX-License-Identifier: Apache-2.0
//! Slots that attach a guest's rings to queues. Ring 2n + 1 carries frames from the guest to receive queue n, ring
//! 2n frames from transmit queue n to the guest (virtio 1.2, section 5.1.2).
//!
//! A ring is in its queue's gate while frames may pass, and parked here while it is changed.

use std::os::fd::OwnedFd;

use quietwire_memory::gate::GateOwner;

use super::rings::{RxRing, TxRing};
use crate::port::interrupts::{Interrupts, Watched};

/// Most former connections whose rings a forwarding thread still uses. A port with that many accepts no further connection.
pub(super) const FORMER_MAX: usize = 2;

/// A ring with its connection.
pub(super) trait OfConnection {
    fn connection(&self) -> u32;
}

impl OfConnection for RxRing {
    fn connection(&self) -> u32 {
        self.context.connection
    }
}

impl OfConnection for TxRing {
    fn connection(&self) -> u32 {
        self.context.connection
    }
}

/// One queue.
#[derive(Debug)]
pub(super) struct Slot<R> {
    owner: GateOwner<R>,
    parked: Option<Box<R>>,
    is_enabled: bool,
    /// The visit that [`Slot::visit_has_ended`] waits for.
    visit: Option<u32>,
}

impl<R: Send + OfConnection> Slot<R> {
    fn new(owner: GateOwner<R>) -> Self {
        Self {
            owner,
            parked: None,
            is_enabled: false,
            visit: None,
        }
    }

    /// Starts to wait for the current visit. A parked ring has none.
    fn await_visit(&mut self) {
        let owner = &self.owner;
        self.visit = owner.is_open().then(|| owner.visit()).flatten();
    }

    /// Returns true if that visit has ended.
    fn visit_has_ended(&mut self) -> bool {
        let owner = &self.owner;
        self.visit = self.visit.filter(|visit| !owner.has_ended(*visit));
        self.visit.is_none()
    }

    /// Removes the ring from the gate. Returns false while a thread uses it.
    fn park(&mut self, connection: u32) -> bool {
        let was_open = self.owner.is_open();
        self.owner.close();
        for ring in self.owner.collect() {
            // Rings of former connections are dropped with their memory.
            if ring.connection() == connection {
                self.parked = Some(ring);
            }
        }
        !was_open || self.parked.is_some()
    }

    /// Returns true while a thread uses the last removed ring.
    fn is_waiting(&mut self, connection: u32) -> bool {
        for ring in self.owner.collect() {
            if ring.connection() == connection {
                self.parked = Some(ring);
            }
        }
        self.parked.is_none() && self.owner.former() > 0
    }

    fn unpark(&mut self) {
        if self.is_enabled
            && let Some(ring) = self.parked.take()
        {
            self.owner.open(ring);
        }
    }
}

/// All queues of a port.
#[derive(Debug, Default)]
pub(super) struct Slots {
    rx: Vec<Slot<RxRing>>,
    tx: Vec<Slot<TxRing>>,
    /// Of the receive queues, while threads may wait for them.
    interrupts: Vec<Interrupts>,
    /// Rings whose queue is waited for.
    waiting: bool,
}

/// Calls a method of the slot of a ring.
macro_rules! slot {
    ($slots:expr, $ring:expr, $slot:ident => $call:expr) => {{
        let queue = usize::from($ring) / 2;
        if $ring % 2 == 1 {
            $slots.rx.get_mut(queue).map(|$slot| $call)
        } else {
            $slots.tx.get_mut(queue).map(|$slot| $call)
        }
    }};
}

impl Slots {
    pub(super) fn new(interrupts: &[Interrupts]) -> Self {
        Self {
            interrupts: interrupts.to_vec(),
            ..Self::default()
        }
    }

    /// Has the kick descriptor of a ring signal the interrupts of its receive queue, if threads wait for them.
    pub(super) fn watch(&self, ring: u8, kick: OwnedFd) -> Result<Option<Watched>, String> {
        let interrupts = self.interrupts.get(usize::from(ring) / 2);
        interrupts
            .filter(|_| ring % 2 == 1)
            .map(|interrupts| interrupts.watch_peer(kick))
            .transpose()
            .map_err(|error| format!("eventfd: {error}"))
    }

    pub(super) fn add_rx(&mut self, owner: GateOwner<RxRing>) {
        self.rx.push(Slot::new(owner));
    }

    pub(super) fn add_tx(&mut self, owner: GateOwner<TxRing>) {
        self.tx.push(Slot::new(owner));
    }

    /// Removes all rings of a connection from their gates. Returns false while a thread uses one of them; the caller then tries again.
    pub(super) fn park(&mut self, connection: u32) -> bool {
        if self.waiting {
            let rx = self.rx.iter_mut().map(|slot| slot.is_waiting(connection));
            let tx = self.tx.iter_mut().map(|slot| slot.is_waiting(connection));
            self.waiting = rx.chain(tx).fold(false, |any, waits| any | waits);
            return !self.waiting;
        }
        let rx = self.rx.iter_mut().map(|slot| slot.park(connection));
        let tx = self.tx.iter_mut().map(|slot| slot.park(connection));
        self.waiting = !rx.chain(tx).fold(true, |all, parked| all & parked);
        !self.waiting
    }

    /// Starts to wait for all current visits. Later visits see earlier writes.
    pub(super) fn await_visits(&mut self) {
        self.rx.iter_mut().for_each(Slot::await_visit);
        self.tx.iter_mut().for_each(Slot::await_visit);
    }

    /// Returns true if those visits have ended.
    pub(super) fn visits_have_ended(&mut self) -> bool {
        let rx = self.rx.iter_mut().map(Slot::visit_has_ended);
        let tx = self.tx.iter_mut().map(Slot::visit_has_ended);
        rx.chain(tx).fold(true, |all, has_ended| all & has_ended)
    }

    /// Puts parked rings that are enabled back into their gates.
    pub(super) fn unpark(&mut self) {
        for slot in &mut self.rx {
            slot.unpark();
        }
        for slot in &mut self.tx {
            slot.unpark();
        }
    }

    /// Removes all rings permanently. Their memory is unmapped when no thread uses them any more.
    pub(super) fn clear(&mut self) {
        self.waiting = false;
        for slot in &mut self.rx {
            slot.owner.close();
            (slot.parked, slot.is_enabled) = (None, false);
        }
        for slot in &mut self.tx {
            slot.owner.close();
            (slot.parked, slot.is_enabled) = (None, false);
        }
        self.collect();
    }

    /// Unmaps memory of former connections that no thread uses any more. Returns the number of remaining connections. It must be
    /// called only without a connection.
    pub(super) fn collect(&mut self) -> usize {
        let rx = self.rx.iter_mut().map(|slot| {
            drop(slot.owner.collect());
            slot.owner.former()
        });
        let tx = self.tx.iter_mut().map(|slot| {
            drop(slot.owner.collect());
            slot.owner.former()
        });
        rx.chain(tx).max().unwrap_or(0)
    }

    /// Returns the parked receive ring.
    pub(super) fn rx(&mut self, ring: u8) -> Option<&mut Option<Box<RxRing>>> {
        let slot = self.rx.get_mut(usize::from(ring) / 2);
        slot.filter(|_| ring % 2 == 1).map(|slot| &mut slot.parked)
    }

    /// Returns the parked transmit ring.
    pub(super) fn tx(&mut self, ring: u8) -> Option<&mut Option<Box<TxRing>>> {
        let slot = self.tx.get_mut(usize::from(ring) / 2);
        slot.filter(|_| ring.is_multiple_of(2))
            .map(|slot| &mut slot.parked)
    }

    /// Returns all parked receive rings and all parked transmit rings.
    pub(super) fn parked(
        &mut self,
    ) -> (
        impl Iterator<Item = &mut RxRing>,
        impl Iterator<Item = &mut TxRing>,
    ) {
        (
            self.rx
                .iter_mut()
                .filter_map(|slot| slot.parked.as_deref_mut()),
            self.tx
                .iter_mut()
                .filter_map(|slot| slot.parked.as_deref_mut()),
        )
    }

    /// Enables or disables a ring.
    pub(super) fn enable(&mut self, ring: u8, is_enabled: bool) {
        // Rings without a queue stay unchanged.
        let _ = slot!(self, ring, slot => slot.is_enabled = is_enabled);
    }

    /// Drops a parked ring.
    pub(super) fn remove(&mut self, ring: u8) {
        let _ = slot!(self, ring, slot => {
            slot.parked = None;
            slot.is_enabled = false;
        });
    }
}
