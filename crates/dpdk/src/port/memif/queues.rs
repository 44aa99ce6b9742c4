// SPDX-License-Identifier: Apache-2.0
//! Queues of a port: the ends for forwarding threads, and the side that attaches rings.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use quietwire_memory::Mapping;
use quietwire_memory::gate::{GateOwner, GateReader};

use super::rings::{RxRing, TxRing};
use crate::burst::Burst;
use crate::mempool::Mempool;
use crate::port::counters::QueueCounters;
use crate::port::in_place::{self, FrameReader, FrameSource, FramesTaken, Scratch};
use crate::port::interrupts::{Interrupts, Watched};
use crate::port::peer::{Guest, Status};
use crate::port::peers::populate::Populating;
use crate::port::transfer;

/// Most former connections whose rings a forwarding thread still uses. A port with that many accepts no further connection.
const FORMER_MAX: usize = 2;

/// A receive queue.
#[derive(Debug)]
pub(crate) struct Receiver {
    ring: GateReader<RxRing>,
    pool: Mempool,
    /// Octets of the longest frame, without FCS.
    limit: u32,
    counters: Arc<QueueCounters>,
}

impl Receiver {
    pub(super) fn new(
        ring: GateReader<RxRing>,
        pool: Mempool,
        limit: u32,
        counters: Arc<QueueCounters>,
    ) -> Self {
        Self {
            ring,
            pool,
            limit,
            counters,
        }
    }

    #[inline(always)]
    pub(crate) fn receive(&mut self, burst: &mut Burst, most: usize) -> usize {
        match self.ring.enter() {
            Some(mut ring) => transfer::receive(
                &mut *ring,
                burst,
                most,
                &self.pool,
                self.limit,
                &self.counters,
            ),
            None => 0,
        }
    }

    /// Reads up to `most` frames where they lie. Returns their number.
    #[inline(always)]
    pub(crate) fn read(
        &mut self,
        most: usize,
        scratch: &mut Scratch,
        reader: &mut impl FrameReader,
    ) -> usize {
        match self.ring.enter() {
            Some(mut ring) => in_place::read(
                &mut *ring,
                most,
                scratch,
                reader,
                self.limit,
                &self.counters,
            ),
            None => 0,
        }
    }

    /// Has the peer signal frames from now on. A peer that connects later does so once the queue is armed again.
    pub(crate) fn arm(&mut self) {
        if let Some(mut ring) = self.ring.enter() {
            // Frames that came meanwhile are found by the poll that follows.
            let _has_frames = ring.ring.unmask_interrupts();
        }
    }

    pub(crate) fn disarm(&mut self) {
        if let Some(mut ring) = self.ring.enter() {
            ring.ring.mask_interrupts();
        }
    }
}

/// A transmit queue.
#[derive(Debug)]
pub(crate) struct Sender {
    ring: GateReader<TxRing>,
    counters: Arc<QueueCounters>,
}

impl Sender {
    pub(super) fn new(ring: GateReader<TxRing>, counters: Arc<QueueCounters>) -> Self {
        Self { ring, counters }
    }

    #[inline(always)]
    pub(crate) fn send(&mut self, burst: &mut Burst) -> usize {
        match self.ring.enter() {
            Some(mut ring) => transfer::send(&mut *ring, burst, &self.counters),
            None => 0,
        }
    }

    /// Writes up to `count` frames of a source where the peer reads them.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        count: usize,
        source: &mut impl FrameSource,
        scratch: &mut Scratch,
    ) -> FramesTaken {
        match self.ring.enter() {
            Some(mut ring) => in_place::write(&mut *ring, count, source, scratch, &self.counters),
            None => FramesTaken::default(),
        }
    }

    /// Notifies the peer of frames written by [`Self::write`] if it waits for them.
    pub(crate) fn settle(&mut self) {
        if let Some(mut ring) = self.ring.enter() {
            in_place::settle(&mut *ring, &self.counters);
        }
    }
}

/// Slots that attach rings to queues, in the queues' order.
#[derive(Debug, Default)]
pub(super) struct Taps {
    pub(super) rx: Vec<GateOwner<RxRing>>,
    pub(super) tx: Vec<GateOwner<TxRing>>,
}

/// The queues of a port in the peer thread.
#[derive(Debug)]
pub(super) struct Queues {
    /// Name of the port, for log lines.
    pub(super) port: String,
    taps: Taps,
    /// Of the receive queues, while threads may wait for them.
    interrupts: Vec<Interrupts>,
    status: Arc<Status>,
    /// Memory of the connection whose rings are attached.
    mappings: Vec<Arc<Mapping>>,
    /// Memory of the connection whose page tables are not completely filled.
    pub(super) populating: Populating,
}

impl Queues {
    pub(super) fn new(
        port: &str,
        taps: Taps,
        interrupts: &[Interrupts],
        status: Arc<Status>,
    ) -> Self {
        Self {
            port: port.to_owned(),
            taps,
            interrupts: interrupts.to_vec(),
            status,
            mappings: Vec::new(),
            populating: Populating::default(),
        }
    }

    /// Has a peer's eventfd signal the interrupts of a receive queue, if threads wait for them.
    pub(super) fn watch(&self, queue: usize, event: OwnedFd) -> Result<Option<Watched>, String> {
        let interrupts = self.interrupts.get(queue);
        interrupts
            .map(|interrupts| interrupts.watch_peer(event))
            .transpose()
            .map_err(|error| format!("eventfd: {error}"))
    }

    /// Attaches the rings of a connection, in the queues' order, of these sizes (receive, transmit). Queues without a ring stay without a peer.
    pub(super) fn attach(
        &mut self,
        rx: Vec<RxRing>,
        tx: Vec<TxRing>,
        mappings: Vec<Arc<Mapping>>,
        (rx_size, tx_size): (u16, u16),
    ) -> Result<(), String> {
        self.collect();
        if self.former() >= FORMER_MAX {
            return Err(format!(
                "a forwarding thread still uses the rings of {FORMER_MAX} former connections"
            ));
        }
        let rings = u16::try_from(rx.len().saturating_add(tx.len())).unwrap_or(u16::MAX);
        for (owner, ring) in self.taps.rx.iter_mut().zip(rx) {
            owner.open(Box::new(ring));
        }
        for (owner, ring) in self.taps.tx.iter_mut().zip(tx) {
            owner.open(Box::new(ring));
        }
        self.status.set_memory(mappings.iter());
        self.mappings = mappings;
        self.status.up(Guest {
            features: 0,
            rings,
            ring_size: rx_size,
        });
        self.status.set_ring_sizes(rx_size, tx_size);
        Ok(())
    }

    /// Sets the process ID of the peer, if known.
    pub(super) fn set_process(&self, process: Option<i32>) {
        self.status.set_process(process);
    }

    /// Detaches all rings. Their memory is unmapped when no thread uses them any more.
    pub(super) fn detach(&mut self, reason: Option<String>) {
        self.status.down(reason);
        for owner in &mut self.taps.rx {
            owner.close();
        }
        for owner in &mut self.taps.tx {
            owner.close();
        }
        self.mappings.clear();
        self.populating = Populating::default();
        self.collect();
    }

    /// Unmaps memory that no thread uses any more. Returns true if no memory of former connections is left.
    pub(super) fn collect(&mut self) -> bool {
        for owner in &mut self.taps.rx {
            drop(owner.collect());
        }
        for owner in &mut self.taps.tx {
            drop(owner.collect());
        }
        self.former() == 0
    }

    /// Returns the number of former connections whose rings a thread may still use.
    pub(super) fn former(&self) -> usize {
        let rx = self.taps.rx.iter().map(GateOwner::former);
        let tx = self.taps.tx.iter().map(GateOwner::former);
        rx.chain(tx).max().unwrap_or(0)
    }

    /// Returns true if memory of the peer is missing.
    pub(super) fn has_faulted(&self) -> bool {
        self.mappings.iter().any(|mapping| mapping.has_faulted())
    }
}

#[cfg(test)]
mod tests {
    use quietwire_memif::session::{Limits, ServerConfig};
    use quietwire_memory::{Sealing, gate, octets_by_node};

    use super::*;
    use crate::port::memif::server::{Interface, Server};
    use crate::port::options::PortOptions;
    use crate::port::peer::{Begin, End, PeerPort};
    use crate::port::peers::socket::Address;
    use crate::testing::{eal, until};

    #[test]
    fn beside_two_former_connections_a_port_serves_no_client_and_says_why() {
        let eal = eal();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("m.sock");
        let (rx, mut reader) = gate::channel();
        let (tx, _visitor) = gate::channel();
        let taps = Taps {
            rx: vec![rx],
            tx: vec![tx],
        };
        let status = Arc::new(Status::default());
        let queues = Queues::new("m", taps, &[], Arc::clone(&status));
        let config = ServerConfig {
            id: 0,
            interface: quietwire_memif::message::Name::default(),
            secret: None,
            limits: Limits::default(),
        };
        let interface = Interface::new(config, Sealing::Required, queues);
        let address = Address::Path(path.clone());
        let begin: Begin = Box::new(move |reactor| {
            let server = Server::listen(address, interface).map_err(|error| error.to_string())?;
            let id = reactor.add(Box::new(server));
            let end: End = Box::new(move |reactor| drop(reactor.remove(id)));
            Ok(end)
        });
        let mut port = PeerPort::new(eal.peers(), begin, status, Vec::new(), Vec::new(), (64, 64));
        port.start().unwrap();

        let uri = format!("memif:{}?role=client", path.display());
        let uri = uri.parse().unwrap();
        let options = PortOptions::new("client", 1518);
        let pool = Mempool::new(&eal, "former-m", 1023, options.data_room()).unwrap();
        let connect = || {
            let (mut client, ..) =
                crate::port::memif::open(&eal, &uri, &options, &pool, &[]).unwrap();
            client.start().unwrap();
            client
        };
        let is_served = |port: &PeerPort, client: &PeerPort| {
            until("the client is served", || {
                port.link_is_up() && client.link_is_up()
            });
        };
        let leaves = |mut client: PeerPort| {
            client.close();
            until("the port is down", || !port.link_is_up());
        };
        let client = connect();
        is_served(&port, &client);
        let own = [1_u8; 4096];
        if octets_by_node(own.as_ptr().addr(), own.len()).is_ok() {
            until("the nodes of the client's memory are known", || {
                [&port, &client].map(|one| one.memory_by_node().is_empty()) == [false, false]
            });
        }
        // A forwarding thread that does not leave the rings of the first client.
        let visit = reader.enter().unwrap();
        leaves(client);
        assert!(port.memory_by_node().is_empty());
        for _ in 1..FORMER_MAX {
            let client = connect();
            is_served(&port, &client);
            leaves(client);
        }
        let mut client = connect();
        let reason = "a forwarding thread still uses the rings of 2 former connections";
        until("the port reports why it stays down", || {
            port.down_reason()
                .is_some_and(|message| message.contains(reason))
        });
        assert!(!port.link_is_up() && !client.link_is_up());
        drop(visit);
        is_served(&port, &client);
        assert_eq!(port.down_reason(), None);
        client.close();
        port.close();
    }
}
