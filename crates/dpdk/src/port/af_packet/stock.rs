// SPDX-License-Identifier: Apache-2.0
//! Packet sockets with receive rings that exist before a port requires them. To create a ring, the kernel waits until no CPU uses the
//! former one (synchronize_net in packet_set_ring, net/packet/af_packet.c), which takes some 10 ms.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::geometry::Geometry;
use super::socket::{Failure, PacketSocket};
use crate::port::closing;

/// Maximum number of sockets of a stock.
const SOCKETS_MAX: usize = 2;
/// Maximum memory of the rings of a stock, octets. A stock has no socket with a larger ring.
const OCTETS_MAX: usize = 32 << 20;

/// Returns sockets that receive for the queues of a port: those of a stock, and new ones if it has too few. They belong to no interface.
pub(super) fn receivers(
    stock: Option<&RingStock>,
    queues: u16,
    geometry: Geometry,
) -> Result<Vec<PacketSocket>, Failure> {
    let count = usize::from(queues);
    let mut receivers = stock.map_or_else(Vec::new, |stock| stock.take(count, geometry));
    while receivers.len() < count {
        receivers.push(PacketSocket::receiver(geometry)?);
    }
    Ok(receivers)
}

/// Returns the maximum number of sockets of a stock with rings of this geometry.
fn sockets_max(geometry: Geometry) -> usize {
    OCTETS_MAX
        .checked_div(geometry.length())
        .unwrap_or_default()
        .min(SOCKETS_MAX)
}

/// A stock of packet sockets with rings, for ports that are opened one after the other. Clones share it.
///
/// Each port with packet sockets takes sockets of the stock, and starts a thread that replaces them. Therefore a port waits for the kernel
/// only if it is the first one, or if it is opened before the sockets are replaced. A stock has the sockets of at most two queues, with
/// rings of at most 32 MiB in sum. They belong to the network namespace of the thread that opened the first port.
#[derive(Clone, Debug, Default)]
pub struct RingStock(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    /// Those of the last port.
    geometry: Option<Geometry>,
    sockets: Vec<PacketSocket>,
    /// A thread fills the stock.
    is_filling: bool,
}

impl Contents {
    /// Selects the geometry of all rings. Returns the sockets with others, and true if the caller must start a thread that fills the stock.
    fn select(&mut self, geometry: Geometry) -> (Vec<PacketSocket>, bool) {
        let mut former = Vec::new();
        if self.geometry != Some(geometry) {
            self.geometry = Some(geometry);
            former = mem::take(&mut self.sockets);
        }
        let starts = !self.is_filling && self.sockets.len() < sockets_max(geometry);
        self.is_filling |= starts;
        (former, starts)
    }

    /// Returns the geometry of the next ring. `None` if the stock is full: the thread that fills it ends.
    fn missing(&mut self) -> Option<Geometry> {
        let missing = self.geometry;
        let missing = missing.filter(|geometry| self.sockets.len() < sockets_max(*geometry));
        self.is_filling = missing.is_some();
        missing
    }

    /// Adds a new socket. Returns it if the geometry has changed meanwhile.
    fn add(&mut self, geometry: Geometry, socket: PacketSocket) -> Option<PacketSocket> {
        if self.geometry != Some(geometry) {
            return Some(socket);
        }
        self.sockets.push(socket);
        None
    }
}

impl RingStock {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes at most `count` sockets with rings of this geometry.
    fn take(&self, count: usize, geometry: Geometry) -> Vec<PacketSocket> {
        let mut contents = self.lock();
        if contents.geometry != Some(geometry) {
            return Vec::new();
        }
        let from = contents.sockets.len().saturating_sub(count);
        contents.sockets.split_off(from)
    }

    /// Starts a thread that fills the stock with rings of this geometry, and closes sockets with others.
    pub(super) fn fill(&self, geometry: Geometry) {
        let (former, starts) = self.lock().select(geometry);
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

    /// Creates sockets until the stock is full. After an error, the next port tries it again.
    fn create_missing(&self) {
        loop {
            let missing = self.lock().missing();
            let Some(geometry) = missing else {
                return;
            };
            // Without the lock, which ports require.
            match PacketSocket::receiver(geometry) {
                Ok(socket) => {
                    let unused = self.lock().add(geometry, socket);
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

    /// Returns the file descriptors of the sockets, once no thread fills the stock.
    #[cfg(test)]
    pub(super) fn settled_fds(&self) -> Option<Vec<std::os::fd::RawFd>> {
        let contents = self.lock();
        let fd = |socket: &PacketSocket| std::os::fd::AsRawFd::as_raw_fd(&**socket);
        let fds = contents.sockets.iter().map(fd).collect();
        (!contents.is_filling).then_some(fds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(slots: u16) -> Geometry {
        Geometry::new(slots, 2048, 4096)
    }

    #[test]
    fn a_stock_is_bounded_in_number_and_memory() {
        assert_eq!(sockets_max(geometry(1024)), SOCKETS_MAX);
        // A ring has 32 MiB.
        assert_eq!(sockets_max(geometry(16384)), 1);
        assert_eq!(sockets_max(Geometry::new(16384, 4096, 4096)), 0);
    }

    #[test]
    fn one_thread_fills_a_stock_with_rings_of_the_last_geometry() {
        let (first, second) = (geometry(512), geometry(1024));
        let mut contents = Contents::default();
        assert_eq!(contents.missing(), None);
        assert!(contents.select(first).1);
        assert_eq!(contents.missing(), Some(first));
        // The running thread continues with the other geometry.
        assert!(!contents.select(second).1);
        assert_eq!(contents.missing(), Some(second));
        // Rings that no stock has: the thread ends.
        let large = Geometry::new(16384, 4096, 4096);
        assert!(!contents.select(large).1);
        assert_eq!(contents.missing(), None);
        assert!(!contents.select(large).1);
        assert!(contents.select(first).1);
    }
}
