// SPDX-License-Identifier: Apache-2.0
//! Common parts of ports with a peer in shared memory: their state for other threads, and their endpoint in the peer thread.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use quietwire_memory::Mapping;
use quietwire_memory::gate::{self, GateOwner, GateReader};
use quietwire_vhost::features::{self, F_LOG_ALL};

use super::counters::{self, QueueCounters};
use super::peers::{Endpoint, Peers, Reactor};
use super::stats::PortStats;
use crate::eal::Memory;

/// The guest of a vhost-user port, or another virtio driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guest {
    /// Feature bits that both sides agreed on (virtio 1.2, sections 5.1.3 and 6); `F_LOG_ALL` while the port logs its writes.
    pub features: u64,
    /// Number of rings that it has set up, in both directions.
    pub rings: u16,
    /// Descriptors of the first ring.
    pub ring_size: u16,
}

impl Guest {
    /// Returns the names of the features, in the order of their bits.
    #[must_use]
    pub fn feature_names(&self) -> Vec<String> {
        features::virtio_name_list(self.features)
    }
}

/// State of a port's connection. The peer thread writes it, any thread reads it.
#[derive(Debug, Default)]
pub(crate) struct Status {
    link: AtomicBool,
    /// Feature bits that were negotiated, 0 without a peer.
    features: AtomicU64,
    rings: AtomicU16,
    ring_size: AtomicU16,
    /// Descriptors of the first receive and the first transmit ring; 0 if they are not known.
    rx_ring_size: AtomicU16,
    tx_ring_size: AtomicU16,
    /// Process ID of the peer, 0 if unknown.
    process: AtomicI32,
    /// Reason why the port is down.
    reason: Mutex<Option<String>>,
    /// Memory of the connection while it is mapped: rings and buffers, or a guest's memory.
    memory: Mutex<Vec<Weak<Mapping>>>,
}

impl Status {
    /// Sets the state to connected.
    pub(crate) fn up(&self, guest: Guest) {
        self.features.store(guest.features, Ordering::Relaxed);
        self.rings.store(guest.rings, Ordering::Relaxed);
        self.ring_size.store(guest.ring_size, Ordering::Relaxed);
        self.set_reason(None);
        self.link.store(true, Ordering::Release);
    }

    /// Sets the sizes of the receive and transmit rings.
    pub(crate) fn set_ring_sizes(&self, rx: u16, tx: u16) {
        self.set_rx_ring_size(rx);
        self.set_tx_ring_size(tx);
    }

    pub(crate) fn set_rx_ring_size(&self, size: u16) {
        self.rx_ring_size.store(size, Ordering::Relaxed);
    }

    pub(crate) fn set_tx_ring_size(&self, size: u16) {
        self.tx_ring_size.store(size, Ordering::Relaxed);
    }

    /// Sets the process ID of the peer, if known.
    pub(crate) fn set_process(&self, process: Option<i32>) {
        self.process.store(process.unwrap_or(0), Ordering::Relaxed);
    }

    /// Counts one more ring, and sets the size of the first.
    pub(crate) fn add_ring(&self, size: u16) {
        self.rings.fetch_add(1, Ordering::Relaxed);
        let none = self
            .ring_size
            .compare_exchange(0, size, Ordering::Relaxed, Ordering::Relaxed);
        // The sizes of further rings are not recorded.
        let _ = none;
    }

    /// Sets whether the port logs its writes to the guest's memory.
    pub(crate) fn set_logging(&self, is_on: bool) {
        if is_on {
            self.features.fetch_or(F_LOG_ALL, Ordering::Relaxed);
        } else {
            self.features.fetch_and(!F_LOG_ALL, Ordering::Relaxed);
        }
    }

    /// Sets the state to disconnected, with the reason.
    pub(crate) fn down(&self, reason: Option<String>) {
        self.link.store(false, Ordering::Release);
        self.features.store(0, Ordering::Relaxed);
        self.rings.store(0, Ordering::Relaxed);
        self.set_ring_sizes(0, 0);
        self.set_reason(reason);
    }

    /// Sets the memory of the connection.
    pub(crate) fn set_memory<'a>(&self, mappings: impl Iterator<Item = &'a Arc<Mapping>>) {
        let memory = mappings.map(Arc::downgrade).collect();
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = memory;
    }

    fn set_reason(&self, reason: Option<String>) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Returns the negotiated feature bits.
    #[inline(always)]
    pub(crate) fn features(&self) -> u64 {
        self.features.load(Ordering::Relaxed)
    }
}

/// Queues of one direction, with what the peer thread and the port keep of each.
pub(crate) struct GatedQueues<Q, T: Send> {
    /// For forwarding threads.
    pub(crate) queues: Vec<Q>,
    /// For the peer thread, which opens and closes the gates.
    pub(crate) owners: Vec<GateOwner<T>>,
    /// For reports.
    pub(crate) counters: Vec<Arc<QueueCounters>>,
}

/// Creates this number of queues behind closed gates.
pub(crate) fn gated_queues<Q, T: Send>(
    count: u16,
    queue: impl Fn(GateReader<T>, Arc<QueueCounters>) -> Q,
) -> GatedQueues<Q, T> {
    let mut made = GatedQueues {
        queues: Vec::new(),
        owners: Vec::new(),
        counters: Vec::new(),
    };
    for _ in 0..count {
        let (owner, reader) = gate::channel();
        let counters = Arc::<QueueCounters>::default();
        made.queues.push(queue(reader, Arc::clone(&counters)));
        made.owners.push(owner);
        made.counters.push(counters);
    }
    made
}

/// Adds an endpoint of one port to the peer thread. Returns the closure that removes it.
pub(crate) fn add_endpoint(reactor: &mut Reactor, endpoint: impl Endpoint + 'static) -> End {
    let id = reactor.add(Box::new(endpoint));
    Box::new(move |reactor| drop(reactor.remove(id)))
}

/// Removes a port from the peer thread.
pub(crate) type End = Box<dyn FnOnce(&mut Reactor) + Send>;
/// Adds a port to the peer thread.
pub(crate) type Begin = Box<dyn FnOnce(&mut Reactor) -> Result<End, String> + Send>;

/// A port with a peer.
pub(crate) struct PeerPort {
    peers: Peers,
    // Boxed closures are `Send` but not `Sync`, hence the locks.
    begin: Mutex<Option<Begin>>,
    end: Mutex<Option<End>>,
    status: Arc<Status>,
    rx: Vec<Arc<QueueCounters>>,
    tx: Vec<Arc<QueueCounters>>,
    ring_sizes: (u16, u16),
    mac_address: [u8; 6],
}

impl std::fmt::Debug for PeerPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerPort")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl PeerPort {
    pub(crate) fn new(
        peers: &Peers,
        begin: Begin,
        status: Arc<Status>,
        rx: Vec<Arc<QueueCounters>>,
        tx: Vec<Arc<QueueCounters>>,
        ring_sizes: (u16, u16),
    ) -> Self {
        Self {
            peers: peers.clone(),
            begin: Mutex::new(Some(begin)),
            end: Mutex::new(None),
            status,
            rx,
            tx,
            ring_sizes,
            mac_address: random_address(),
        }
    }

    /// Starts to listen or connect.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        let begin = self.begin.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(begin) = begin.take() else {
            return Ok(());
        };
        match self.peers.call(begin) {
            Some(Ok(end)) => {
                *self.end.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(end);
                Ok(())
            }
            Some(Err(cause)) => Err(cause),
            None => Err("the peer thread does not reply".to_owned()),
        }
    }

    /// Ends the connection and closes the socket.
    pub(crate) fn close(&mut self) {
        let end = self.end.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(end) = end.take()
            && self.peers.call(end).is_none()
        {
            tracing::warn!("cannot close the socket of a port: the peer thread does not reply");
        }
    }

    pub(crate) fn stats(&self) -> PortStats {
        counters::sum(
            self.rx.iter().map(Arc::as_ref),
            self.tx.iter().map(Arc::as_ref),
        )
    }

    pub(crate) fn extended_stats(&self) -> Vec<(String, u64)> {
        let all = self.stats();
        let mut stats: Vec<_> = [("rx_errors", all.rx_errors), ("tx_errors", all.tx_errors)]
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| (name.to_owned(), count))
            .collect();
        stats.extend(counters::extended("rx", self.rx.iter().map(Arc::as_ref)));
        stats.extend(counters::extended("tx", self.tx.iter().map(Arc::as_ref)));
        stats
    }

    pub(crate) fn ring_sizes(&self) -> (Option<u16>, Option<u16>) {
        let of_peer = |size: &AtomicU16| match size.load(Ordering::Relaxed) {
            0 => None,
            size => Some(size),
        };
        let (rx, tx) = self.ring_sizes;
        (
            of_peer(&self.status.rx_ring_size).or(Some(rx)),
            of_peer(&self.status.tx_ring_size).or(Some(tx)),
        )
    }

    pub(crate) fn link_is_up(&self) -> bool {
        self.status.link.load(Ordering::Acquire)
    }

    pub(crate) fn process(&self) -> Option<i32> {
        let process = self.status.process.load(Ordering::Relaxed);
        (self.link_is_up() && process > 0).then_some(process)
    }

    pub(crate) fn guest(&self) -> Option<Guest> {
        self.link_is_up().then(|| Guest {
            features: self.status.features(),
            rings: self.status.rings.load(Ordering::Relaxed),
            ring_size: self.status.ring_size.load(Ordering::Relaxed),
        })
    }

    /// Returns the octets of the connection's memory by NUMA node. Empty without a connection, or if the kernel does not report nodes.
    pub(crate) fn memory_by_node(&self) -> BTreeMap<u32, u64> {
        let mut nodes = BTreeMap::new();
        if !self.link_is_up() {
            return nodes;
        }
        let memory = &self.status.memory;
        // Not locked while the kernel looks pages up.
        let memory = memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for mapping in memory.iter().filter_map(Weak::upgrade) {
            for (node, octets) in mapping.octets_by_node().unwrap_or_default() {
                let sum: &mut u64 = nodes.entry(node).or_default();
                *sum = sum.saturating_add(octets);
            }
        }
        nodes
    }

    pub(crate) fn down_reason(&self) -> Option<String> {
        let reason = &self.status.reason;
        reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn mac_address(&self) -> [u8; 6] {
        self.mac_address
    }
}

/// Returns a random unicast address that is administered locally (IEEE 802, section 8.2.2).
pub(crate) fn random_address() -> [u8; 6] {
    let mut address = [0x02, 0, 0, 0, 0, 1];
    // Without a random number, this address stays.
    let _ = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut address));
    address[0] = address[0] & 0xfc | 0x02;
    address
}

/// Makes memory for rings and buffers: in huge pages if the process uses them and enough are free.
pub(crate) fn shared_memory(len: usize, memory: Memory) -> Result<(Mapping, OwnedFd), String> {
    const NAME: &str = "quietwire-rings";
    if memory == Memory::HugePages
        && let Ok(huge) = Mapping::create_huge(NAME, len)
    {
        return Ok(huge);
    }
    Mapping::create(NAME, len).map_err(|error| error.to_string())
}
