// SPDX-License-Identifier: Apache-2.0
//! Echo service (RFC 862) at one address, over UDP and TCP.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::EchoError;

/// Largest number of simultaneous connections. A further one replaces a connection without traffic ([`replaceable`]), or waits.
const CONNECTIONS_MAX: usize = 64;
/// Time without traffic after which another connection may replace one that has sent data.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// Interval of the checks of the stop flag while the service is idle, milliseconds.
const TIMEOUT_MS: u16 = 50;
/// Largest number of datagrams echoed in a row, so that connections get their turn.
const DATAGRAMS_A_TURN: usize = 64;
/// Largest number of octets of one connection that wait for transmission.
const WAITING_MAX: usize = 1 << 18;

/// Echo service bound to its address.
#[derive(Debug)]
pub struct EchoServer {
    udp: UdpSocket,
    tcp: TcpListener,
    address: SocketAddr,
}

struct Connection {
    stream: TcpStream,
    waiting: Vec<u8>,
    /// True after the first octet from the peer.
    has_received: bool,
    /// Time of the last octets in either direction, or of the start.
    active_at: Instant,
}

impl EchoServer {
    /// Binds to an address, with the same port for UDP and TCP. Port 0 selects any free port.
    ///
    /// # Errors
    /// [`EchoError::Bind`].
    pub fn bind(address: SocketAddr) -> Result<Self, EchoError> {
        let failed = |error| EchoError::Bind { address, error };
        let tcp = TcpListener::bind(address).map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        let udp = UdpSocket::bind(address).map_err(failed)?;
        tcp.set_nonblocking(true).map_err(failed)?;
        udp.set_nonblocking(true).map_err(failed)?;
        Ok(Self { udp, tcp, address })
    }

    /// Returns the address of the service.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Echoes datagrams and streams until `stop` is set.
    ///
    /// # Errors
    /// The error of poll(2). An error on a connection ends only that connection.
    pub fn serve(&self, stop: &AtomicBool) -> io::Result<()> {
        let mut connections: Vec<Connection> = Vec::new();
        let mut buffer = vec![0; usize::from(u16::MAX)];
        while !stop.load(Ordering::Relaxed) {
            self.wait(&connections)?;
            self.answer_datagrams(&mut buffer);
            // Before a new connection replaces one whose octets have just arrived.
            connections.retain_mut(|connection| connection.turn(&mut buffer).is_ok());
            self.accept(&mut connections);
        }
        Ok(())
    }

    /// Accepts a connection if there is a place for it.
    fn accept(&self, connections: &mut Vec<Connection>) {
        let now = Instant::now();
        if has_place(connections, now)
            && let Ok((stream, _)) = self.tcp.accept()
            && stream.set_nonblocking(true).is_ok()
            && stream.set_nodelay(true).is_ok()
        {
            if connections.len() >= CONNECTIONS_MAX
                && let Some(index) = replaceable(connections, now)
            {
                connections.swap_remove(index);
            }
            connections.push(Connection {
                stream,
                waiting: Vec::new(),
                has_received: false,
                active_at: now,
            });
        }
    }

    /// Waits until there is something to do, or until a timeout.
    fn wait(&self, connections: &[Connection]) -> io::Result<()> {
        let mut watched = vec![PollFd::new(self.udp.as_fd(), PollFlags::POLLIN)];
        if has_place(connections, Instant::now()) {
            watched.push(PollFd::new(self.tcp.as_fd(), PollFlags::POLLIN));
        }
        watched.extend(connections.iter().map(|connection| {
            let flags = if connection.waiting.is_empty() {
                PollFlags::POLLIN
            } else {
                PollFlags::POLLOUT
            };
            PollFd::new(connection.stream.as_fd(), flags)
        }));
        match poll(&mut watched, PollTimeout::from(TIMEOUT_MS)) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn answer_datagrams(&self, buffer: &mut [u8]) {
        for _ in 0..DATAGRAMS_A_TURN {
            match self.udp.recv_from(buffer) {
                // A datagram that cannot be sent is lost: UDP permits that.
                Ok((length, from)) => {
                    if let Some(datagram) = buffer.get(..length)
                        && let Err(error) = self.udp.send_to(datagram, from)
                    {
                        tracing::debug!("no reply to {from}: {error}");
                    }
                }
                // An earlier reply was refused; this call reports it.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => return,
            }
        }
    }
}

/// Returns true if a further connection can start.
fn has_place(connections: &[Connection], now: Instant) -> bool {
    connections.len() < CONNECTIONS_MAX || replaceable(connections, now).is_some()
}

/// Returns the index of the connection that a further one may replace: the oldest one that has never sent anything, else the one without
/// traffic for the longest time, from [`IDLE_MAX`] on. A client of [`super::run`] sends its first request immediately.
fn replaceable(connections: &[Connection], now: Instant) -> Option<usize> {
    let (index, idlest) = connections
        .iter()
        .enumerate()
        .min_by_key(|(_, connection)| (connection.has_received, connection.active_at))?;
    let idle = now.saturating_duration_since(idlest.active_at);
    (!idlest.has_received || idle >= IDLE_MAX).then_some(index)
}

impl Connection {
    /// Echoes the octets received. Returns an error if the connection ended.
    fn turn(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        if self.waiting.len() < WAITING_MAX {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    let received = buffer.get(..length).unwrap_or_default();
                    self.waiting.extend_from_slice(received);
                    self.has_received = true;
                    self.active_at = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if self.waiting.is_empty() {
            return Ok(());
        }
        match self.stream.write(&self.waiting) {
            Ok(written) => {
                self.waiting.drain(..written);
                self.active_at = Instant::now();
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_connection_is_replaced_before_the_one_that_is_idle_longest() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let start = Instant::now();
        let millisecond = Duration::from_millis(1);
        let connection = |has_received, active_ms: u32| Connection {
            stream: TcpStream::connect(address).unwrap(),
            waiting: Vec::new(),
            has_received,
            active_at: start + millisecond * active_ms,
        };
        let end = start + IDLE_MAX;
        assert_eq!(replaceable(&[], end), None);
        let mut connections = vec![
            connection(true, 1),
            connection(true, 0),
            connection(true, 2),
        ];
        assert_eq!(replaceable(&connections, end - millisecond), None);
        assert_eq!(replaceable(&connections, end), Some(1));
        connections.extend([connection(false, 4), connection(false, 3)]);
        assert_eq!(replaceable(&connections, start), Some(4));
    }
}
