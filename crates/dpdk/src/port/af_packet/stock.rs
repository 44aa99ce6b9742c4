// SPDX-License-Identifier: Apache-2.0
//! Packet sockets with rings that exist before a port requires them. For each ring, the kernel waits until no CPU uses a former one
//! (synchronize_net in packet_set_ring, net/packet/af_packet.c), which takes some 10 ms.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::errno::Errno;

use super::geometry::Geometry;
use super::socket::{Failure, PacketSocket};
use crate::port::closing;

/// Most socket pairs of a stock.
const PAIRS_MAX: usize = 2;
/// Most memory of the rings of a stock, octets. A stock has no pair with larger rings.
const OCTETS_MAX: usize = 32 << 20;

/// Geometries of the receive ring and of the transmit ring of a queue.
pub(super) type Geometries = (Geometry, Geometry);

/// Sockets of a queue that receive and send, each with its ring. They belong to no interface, and receive nothing.
#[derive(Debug)]
pub(super) struct SocketPair {
    receiver: PacketSocket,
    sender: PacketSocket,
}

impl SocketPair {
    /// Returns the sockets that receive and send on an interface. Nothing is received before [`PacketSocket::start`].
    pub(super) fn attach(self, interface: u32) -> Result<(PacketSocket, PacketSocket), Failure> {
        let sender = self.sender.bind_sender(interface)?;
        Ok((self.receiver.with_interface(interface), sender))
    }

    /// Returns the file descriptor of the socket that receives.
    #[cfg(test)]
    pub(super) fn receiver_fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&*self.receiver)
    }
}

/// Returns socket pairs for the queues of a port: those of a stock, and new ones if it has too few.
pub(super) fn pairs(
    stock: Option<&RingStock>,
    queues: u16,
    geometries: Geometries,
) -> Result<Vec<SocketPair>, Failure> {
    let count = usize::from(queues);
    let mut pairs = stock.map_or_else(Vec::new, |stock| stock.take(count, geometries));
    let missing = count.saturating_sub(pairs.len());
    if missing > 0 {
        pairs.extend(create(missing, geometries)?);
    }
    Ok(pairs)
}

/// Creates socket pairs. A further thread waits for the rings that send at the same time.
fn create(
    count: usize,
    (rx_geometry, tx_geometry): Geometries,
) -> Result<Vec<SocketPair>, Failure> {
    let senders = || -> Result<Vec<_>, Failure> {
        let all = (0..count).map(|_| PacketSocket::sender(tx_geometry));
        all.collect()
    };
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("qw-rings".to_owned());
        let spawned = builder.spawn_scoped(scope, senders);
        let receivers = (0..count).map(|_| PacketSocket::receiver(rx_geometry));
        let receivers = receivers.collect::<Result<Vec<_>, Failure>>();
        let senders = match spawned {
            Ok(thread) => thread.join().unwrap_or(Err(("a thread", Errno::EIO))),
            // It takes longer without a thread.
            Err(_) => senders(),
        };
        let pairs = receivers?.into_iter().zip(senders?);
        Ok(pairs
            .map(|(receiver, sender)| SocketPair { receiver, sender })
            .collect())
    })
}

/// Returns the number of socket pairs that a stock has.
fn pairs_max((rx_geometry, tx_geometry): Geometries) -> usize {
    let octets = rx_geometry.length().saturating_add(tx_geometry.length());
    OCTETS_MAX
        .checked_div(octets)
        .unwrap_or_default()
        .min(PAIRS_MAX)
}

/// A stock of packet sockets with rings, for ports that are opened one after the other. Clones share it.
///
/// Each port with packet sockets takes the sockets of the stock, and has a thread replace them afterwards. So the first port waits for
/// the kernel, and later ones do not, unless they follow faster than the sockets are replaced. A stock has the sockets of at most two
/// queues, with rings of at most 32 MiB in sum. They belong to the network namespace of the thread that opened the first port.
#[derive(Clone, Debug, Default)]
pub struct RingStock(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    /// Those of the last port.
    geometries: Option<Geometries>,
    pairs: Vec<SocketPair>,
    /// A thread fills the stock.
    is_filling: bool,
}

impl Contents {
    /// Selects the geometries of all pairs. Returns the pairs of others, and true if the caller must start a thread that fills the stock.
    fn select(&mut self, geometries: Geometries) -> (Vec<SocketPair>, bool) {
        let mut former = Vec::new();
        if self.geometries != Some(geometries) {
            self.geometries = Some(geometries);
            former = mem::take(&mut self.pairs);
        }
        let starts = !self.is_filling && self.pairs.len() < pairs_max(geometries);
        self.is_filling |= starts;
        (former, starts)
    }

    /// Returns the geometries of the next pair. `None` if the stock is full: the thread that fills it ends.
    fn missing(&mut self) -> Option<Geometries> {
        let missing = self.geometries;
        let missing = missing.filter(|geometries| self.pairs.len() < pairs_max(*geometries));
        self.is_filling = missing.is_some();
        missing
    }

    /// Adds new pairs. Returns them if the geometries have changed meanwhile.
    fn add(&mut self, geometries: Geometries, pairs: Vec<SocketPair>) -> Vec<SocketPair> {
        if self.geometries != Some(geometries) {
            return pairs;
        }
        self.pairs.extend(pairs);
        Vec::new()
    }
}

impl RingStock {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes at most `count` pairs with these geometries.
    fn take(&self, count: usize, geometries: Geometries) -> Vec<SocketPair> {
        let mut contents = self.lock();
        if contents.geometries != Some(geometries) {
            return Vec::new();
        }
        let from = contents.pairs.len().saturating_sub(count);
        contents.pairs.split_off(from)
    }

    /// Fills the stock with pairs of these geometries in a further thread, and closes pairs of others.
    pub(super) fn fill(&self, geometries: Geometries) {
        let (former, starts) = self.lock().select(geometries);
        if !former.is_empty() {
            closing::close(former);
        }
        if !starts {
            return;
        }
        let stock = self.clone();
        let builder = thread::Builder::new().name("qw-stock".to_owned());
        if let Err(error) = builder.spawn(move || stock.create_missing()) {
            self.lock().is_filling = false;
            tracing::debug!("the next port has to wait for its rings: {error}");
        }
    }

    /// Creates pairs until the stock is full. After an error, the next port tries it again.
    fn create_missing(&self) {
        loop {
            let missing = self.lock().missing();
            let Some(geometries) = missing else {
                return;
            };
            // Without the lock, which ports require.
            match create(1, geometries) {
                Ok(pairs) => {
                    let unused = self.lock().add(geometries, pairs);
                    drop(unused);
                }
                Err((step, error)) => {
                    self.lock().is_filling = false;
                    let cause = error.desc();
                    tracing::debug!("the next port has to wait for its rings: {step}: {cause}");
                    return;
                }
            }
        }
    }

    /// Returns the file descriptors of the sockets that receive, once no thread fills the stock.
    #[cfg(test)]
    pub(super) fn settled_fds(&self) -> Option<Vec<std::os::fd::RawFd>> {
        let contents = self.lock();
        let fds = contents.pairs.iter().map(SocketPair::receiver_fd).collect();
        (!contents.is_filling).then_some(fds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_is_bounded_in_number_and_memory() {
        let geometries = |slots, space| {
            let geometry = Geometry::new(slots, space, 4096);
            (geometry, geometry)
        };
        assert_eq!(pairs_max(geometries(1024, 2048)), PAIRS_MAX);
        // A ring has 16 MiB, and a pair 32 MiB.
        assert_eq!(pairs_max(geometries(8192, 2048)), 1);
        assert_eq!(pairs_max(geometries(16384, 2048)), 0);
    }

    #[test]
    fn one_thread_fills_a_stock_with_pairs_of_the_last_geometries() {
        let geometries = |slots| {
            let geometry = Geometry::new(slots, 2048, 4096);
            (geometry, geometry)
        };
        let (first, second) = (geometries(512), geometries(1024));
        let mut contents = Contents::default();
        assert_eq!(contents.missing(), None);
        assert!(contents.select(first).1);
        assert_eq!(contents.missing(), Some(first));
        // The running thread continues with the other geometries.
        assert!(!contents.select(second).1);
        assert_eq!(contents.missing(), Some(second));
        // Rings that no stock has: the thread ends.
        let large = geometries(16384);
        assert!(!contents.select(large).1);
        assert_eq!(contents.missing(), None);
        assert!(!contents.select(large).1);
        assert!(contents.select(first).1);
    }
}
