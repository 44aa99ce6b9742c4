// SPDX-License-Identifier: Apache-2.0
//! The socket of a vhost-user port, as server or client, and its one connection.

use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quietwire_base::RateLimit;
use quietwire_memory::Sealing;
use quietwire_vhost::session::backend::BackendConfig;

use super::connection::{Connection, Step};
use super::slots::{FORMER_MAX, Slots};
use crate::port::peer::Status;
use crate::port::peers::populate::POPULATE;
use crate::port::peers::socket::{self, Address, Kind};
use crate::port::peers::{self, Control, LogLimit};

/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(500);
/// Rate limit of connections: a burst, then one per interval.
const CONNECTIONS_BURST: u32 = 16;
const CONNECTION_INTERVAL: Duration = Duration::from_millis(100);
/// Most messages read at once.
const MESSAGES_AT_ONCE: usize = 16;
/// Interval between checks of memory and deadlines, and the interval while addresses may be missing.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const MISS_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Interval between attempts to park a ring that a thread uses.
const PARK: Duration = Duration::from_millis(1);
/// Interval between attempts to unmap memory that a thread uses.
const COLLECT: Duration = Duration::from_millis(10);
/// Pause in accepting connections if the process has no free descriptors.
const NO_DESCRIPTORS: Duration = Duration::from_secs(1);

const LISTENER: u32 = 0;
const CONNECTION: u32 = 1;

/// The socket of a port.
pub(super) struct Endpoint {
    port: String,
    address: Address,
    config: BackendConfig,
    sealing: Sealing,
    slots: Slots,
    status: Arc<Status>,
    /// None for a client.
    listener: Option<OwnedFd>,
    is_listening: bool,
    connection: Option<Connection>,
    is_reading: bool,
    /// Number of the last connection.
    number: u32,
    /// Time before which no message is read and no connection is accepted or attempted.
    paused_until: Option<Instant>,
    rate: RateLimit,
    log: LogLimit,
}

impl Endpoint {
    pub(super) fn new(
        port: &str,
        address: Address,
        config: BackendConfig,
        sealing: Sealing,
        slots: Slots,
        status: Arc<Status>,
    ) -> Self {
        Self {
            port: port.to_owned(),
            address,
            config,
            sealing,
            slots,
            status,
            listener: None,
            is_listening: false,
            connection: None,
            is_reading: false,
            number: 0,
            paused_until: None,
            rate: RateLimit::new(CONNECTION_INTERVAL, CONNECTIONS_BURST, Instant::now()),
            log: LogLimit::new(),
        }
    }

    /// Creates the socket.
    pub(super) fn listen(mut self) -> io::Result<Self> {
        self.listener = Some(socket::listen_at(&self.address, Kind::Stream)?);
        Ok(self)
    }

    fn pause(&mut self, wait: Duration, control: &mut Control<'_>) {
        self.paused_until = control.now.checked_add(wait);
        control.wake_in(wait);
    }

    /// Accepts a connection, or connects.
    fn poll_peer(&mut self, control: &mut Control<'_>) {
        if self.paused_until.is_some_and(|until| until > control.now) {
            return;
        }
        self.paused_until = None;
        if self.slots.collect() >= FORMER_MAX {
            let reason = format!(
                "a forwarding thread still uses the rings of {FORMER_MAX} former connections"
            );
            self.status.down(Some(reason));
            return self.pause(COLLECT, control);
        }
        if let Some(listener) = &self.listener {
            if !self.is_listening {
                self.is_listening = control.watch(listener, LISTENER).is_ok();
            }
        } else {
            match socket::connect_to(&self.address, Kind::Stream) {
                Ok(socket) => self.begin(socket, control),
                Err(error) => {
                    tracing::debug!("port '{}': {}: {error}", self.port, self.address);
                    self.pause(RETRY, control);
                }
            }
        }
    }

    fn accept(&mut self, control: &mut Control<'_>) {
        let Some(listener) = &self.listener else {
            return;
        };
        let limited = self.rate.take(control.now);
        let accepted = limited
            .map_err(|wait| (wait, None))
            .and_then(|()| socket::accept(listener).map_err(|error| (NO_DESCRIPTORS, Some(error))));
        match accepted {
            Ok(Some(socket)) => {
                self.stop_listening(control);
                self.begin(socket, control);
            }
            Ok(None) => {}
            Err((wait, error)) => {
                if let Some(error) = error
                    && self.log.allows()
                {
                    tracing::warn!("{}: cannot accept a connection: {error}", self.address);
                }
                self.stop_listening(control);
                self.pause(wait, control);
            }
        }
    }

    /// Stops accepting. Further clients wait until the connection has ended.
    fn stop_listening(&mut self, control: &Control<'_>) {
        if let Some(listener) = &self.listener
            && std::mem::take(&mut self.is_listening)
        {
            control.unwatch(listener);
        }
    }

    fn begin(&mut self, socket: OwnedFd, control: &mut Control<'_>) {
        if control.watch(&socket, CONNECTION).is_err() {
            return self.pause(RETRY, control);
        }
        self.status.set_process(socket::peer_process(&socket));
        self.is_reading = true;
        self.number = self.number.wrapping_add(1);
        self.connection = Some(Connection::new(
            socket,
            self.number,
            &self.port,
            &self.config,
            self.sealing,
            control.now,
        ));
        control.wake_in(POLL_INTERVAL);
    }

    fn advance(&mut self, control: &mut Control<'_>) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let step = connection.advance(&mut self.slots, &self.status, MESSAGES_AT_ONCE, control.now);
        let is_reading = match step {
            Ok(Step::Idle) => true,
            Ok(Step::Parking) => {
                control.wake_in(PARK);
                false
            }
            Ok(Step::Pause(wait)) => {
                self.paused_until = control.now.checked_add(wait);
                control.wake_in(wait);
                false
            }
            Err(reason) => return self.end(reason, control),
        };
        if is_reading != self.is_reading {
            self.is_reading = is_reading;
            if is_reading {
                // A failure is harmless: the next tick tries again.
                self.is_reading = control.watch(&connection.socket, CONNECTION).is_ok();
            } else {
                control.unwatch(&connection.socket);
            }
        }
    }

    fn end(&mut self, reason: String, control: &mut Control<'_>) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        control.unwatch(&connection.socket);
        self.is_reading = false;
        if self.log.allows() {
            tracing::info!("port '{}': disconnected: {reason}", self.port);
        }
        self.status.down(Some(reason));
        self.slots.clear();
        // The memory is unmapped with its last ring.
        drop(connection);
        if self.listener.is_none() {
            self.pause(RETRY, control);
        }
        control.wake_in(PARK);
    }
}

impl peers::Endpoint for Endpoint {
    fn ready(&mut self, token: u32, control: &mut Control<'_>) {
        if token == LISTENER {
            self.accept(control);
        } else {
            self.advance(control);
        }
    }

    fn tick(&mut self, control: &mut Control<'_>) {
        let Some(connection) = &mut self.connection else {
            self.poll_peer(control);
            if self.slots.collect() > 0 {
                control.wake_in(COLLECT);
            }
            if let Some(until) = self.paused_until {
                control.wake_at(until);
            }
            return;
        };
        let has_iotlb = connection.has_iotlb();
        if let Err(reason) = connection.look(control.now) {
            return self.end(reason, control);
        }
        if connection.populate() {
            control.wake_in(POPULATE);
        }
        if !self.is_reading && self.paused_until.is_none_or(|until| until <= control.now) {
            self.advance(control);
        }
        control.wake_in(if has_iotlb {
            MISS_POLL_INTERVAL
        } else {
            POLL_INTERVAL
        });
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use quietwire_memory::gate;

    use super::*;
    use crate::mempool::Mempool;
    use crate::port::options::PortOptions;
    use crate::port::peer::{Begin, End, PeerPort};
    use crate::port::virtio_user;
    use crate::testing::{eal, until};

    #[test]
    fn beside_two_former_connections_a_port_serves_no_guest_and_says_why() {
        let eal = eal();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("v.sock");
        let (rx, mut reader) = gate::channel();
        let (tx, _visitor) = gate::channel();
        let mut slots = Slots::default();
        slots.add_rx(rx);
        slots.add_tx(tx);
        let status = Arc::new(Status::default());
        let endpoint = Endpoint::new(
            "v",
            Address::Path(path.clone()),
            BackendConfig::default(),
            Sealing::Required,
            slots,
            Arc::clone(&status),
        );
        let begin: Begin = Box::new(move |reactor| {
            let endpoint = endpoint.listen().map_err(|error| error.to_string())?;
            let id = reactor.add(Box::new(endpoint));
            let end: End = Box::new(move |reactor| drop(reactor.remove(id)));
            Ok(end)
        });
        let mut port = PeerPort::new(eal.peers(), begin, status, Vec::new(), Vec::new(), (64, 64));
        port.start().unwrap();

        let uri = format!("virtio-user:{}?mergeable=off", path.display());
        let uri = uri.parse().unwrap();
        let options = PortOptions::new("guest", 1518);
        let pool = Mempool::new(&eal, "former-v", 1023, options.data_room()).unwrap();
        let connect = || {
            let (mut guest, ..) = virtio_user::open(&eal, &uri, &options, &pool).unwrap();
            guest.start().unwrap();
            guest
        };
        let leaves = |mut guest: PeerPort| {
            guest.close();
            until("the port is down", || !port.link_is_up());
        };
        let guest = connect();
        until("the first guest is served", || {
            guest.link_is_up() && reader.is_open()
        });
        // A forwarding thread that does not leave a ring of the first guest.
        let visit = reader.enter().unwrap();
        leaves(guest);
        for _ in 1..FORMER_MAX {
            let guest = connect();
            until("the guest is served", || guest.link_is_up());
            leaves(guest);
        }
        let mut guest = connect();
        let reason = "a forwarding thread still uses the rings of 2 former connections";
        until("the port reports why it stays down", || {
            port.down_reason().as_deref() == Some(reason)
        });
        assert!(!port.link_is_up() && !guest.link_is_up());
        drop(visit);
        until("the guest is served", || {
            guest.link_is_up() && port.link_is_up()
        });
        assert_eq!(port.down_reason(), None);
        guest.close();
        port.close();
    }
}
