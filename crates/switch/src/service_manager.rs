// SPDX-License-Identifier: Apache-2.0
//! Notifications to the service manager (sd_notify(3)): readiness, status, and the watchdog.
//!
//! A notification is one datagram to the socket that `NOTIFY_SOCKET` names, so no library is needed. Without that variable nothing is sent.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quietwire_base::Deadline;

use crate::error::SwitchError;
use crate::threads::forwarding_name;

/// Name of the variable with the address of the socket: a path, or `@` and an abstract name.
const SOCKET: &str = "NOTIFY_SOCKET";
/// Name of the variable with the timeout of the watchdog, µs.
const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
/// Name of the variable with the process that the watchdog is meant for.
const WATCHDOG_PID: &str = "WATCHDOG_PID";
/// Maximum wait for space in the socket.
const SEND_MAX: Duration = Duration::from_secs(1);
/// Pause between two attempts to send.
const PAUSE: Duration = Duration::from_millis(10);

/// The socket of the service manager, if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceManager(Option<Arc<Connection>>);

#[derive(Debug)]
struct Connection {
    socket: UnixDatagram,
    address: SocketAddr,
}

fn wrong(variable: &str, what: impl Into<String>) -> SwitchError {
    SwitchError::Config {
        location: format!("environment variable {variable}"),
        what: what.into(),
    }
}

impl ServiceManager {
    /// Reads the address from the environment.
    ///
    /// # Errors
    /// [`SwitchError::Config`] for an address that is neither a path nor an abstract name, or if the system creates no socket.
    pub(crate) fn from_environment() -> Result<Self, SwitchError> {
        std::env::var_os(SOCKET).map_or_else(|| Ok(Self::default()), |name| Self::at(&name))
    }

    /// Uses the socket with this name.
    fn at(name: &OsStr) -> Result<Self, SwitchError> {
        let open = || -> io::Result<Connection> {
            let address = match name.as_bytes() {
                [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
                [b'/', ..] => SocketAddr::from_pathname(name)?,
                _ => {
                    return Err(io::Error::other(
                        "neither an absolute path nor '@' and a name",
                    ));
                }
            };
            let socket = UnixDatagram::unbound()?;
            // A service manager that reads nothing must not stop the control thread.
            socket.set_nonblocking(true)?;
            Ok(Connection { socket, address })
        };
        let connection = open().map_err(|cause| {
            let name = name.display();
            wrong(
                SOCKET,
                format!("cannot use '{name}': {cause} (unset it to run without a service manager)"),
            )
        })?;
        Ok(Self(Some(Arc::new(connection))))
    }

    /// Reports that all ports are open and all threads run.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// Reports that the switch stops.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping");
    }

    /// Sends one notification. The switch works without a service manager, so an error is a warning.
    fn send(&self, text: &str) {
        let Some(connection) = &self.0 else { return };
        let attempt = || match connection
            .socket
            .send_to_addr(text.as_bytes(), &connection.address)
        {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            other => Some(other),
        };
        match Deadline::after(SEND_MAX).poll(PAUSE, attempt) {
            Some(Ok(_)) => {}
            Some(Err(error)) => tracing::warn!("cannot notify the service manager: {error}"),
            None => tracing::warn!(
                "cannot notify the service manager: its socket has been full for {} s",
                SEND_MAX.as_secs()
            ),
        }
    }
}

/// A keep-alive signal that is sent only while every forwarding thread runs.
#[derive(Debug)]
pub(crate) struct Watchdog {
    manager: ServiceManager,
    /// Interval between two signals: half of the manager's timeout (sd_watchdog_enabled(3)).
    interval: Duration,
    sent: Instant,
    /// Turns of each thread when the last signal was sent, by CPU.
    turns: BTreeMap<u32, u64>,
    status: String,
}

impl Watchdog {
    /// Reads the timeout from the environment; `None` without one, and if it is meant for another process.
    ///
    /// # Errors
    /// [`SwitchError::Config`] for a timeout that is not a number of microseconds above 0.
    pub(crate) fn from_environment(manager: &ServiceManager) -> Result<Option<Self>, SwitchError> {
        let variable = |name| std::env::var(name).ok();
        let interval = interval(
            variable(WATCHDOG_USEC).as_deref(),
            variable(WATCHDOG_PID).as_deref(),
        )?;
        Ok(interval.map(|interval| Self::every(interval, manager)))
    }

    fn every(interval: Duration, manager: &ServiceManager) -> Self {
        Self {
            manager: manager.clone(),
            interval,
            sent: Instant::now(),
            turns: BTreeMap::new(),
            status: String::new(),
        }
    }

    /// Returns the time until the next signal is due, ms, at most `limit_ms`.
    pub(crate) fn wait_ms(&self, limit_ms: u16) -> u16 {
        let due = Deadline::at(self.sent, self.interval).remaining();
        // A late thread is checked for at the usual pace of the control thread.
        let due = if due.is_zero() { self.interval } else { due };
        u16::try_from(due.as_millis()).map_or(limit_ms, |due| due.clamp(1, limit_ms.max(1)))
    }

    /// Sends a signal if one is due and every thread has made a turn since the last one. `turns` yields the CPU and the number of turns of
    /// each thread, `status` describes the switch.
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        turns: impl Iterator<Item = (u32, u64)>,
        status: impl FnOnce() -> String,
    ) {
        if now.saturating_duration_since(self.sent) < self.interval {
            return;
        }
        let turns: BTreeMap<u32, u64> = turns.collect();
        let late: Vec<String> = turns
            .iter()
            .filter(|(cpu, turns)| self.turns.get(cpu) == Some(turns))
            .map(|(cpu, _)| forwarding_name(*cpu))
            .collect();
        if late.is_empty() {
            self.turns = turns;
            self.sent = now;
            self.notify("WATCHDOG=1", status());
        } else {
            let late = late.join(", ");
            self.notify("", format!("not forwarding: {late} made no progress"));
        }
    }

    /// Sends a state, and the status if it has changed.
    fn notify(&mut self, state: &str, status: String) {
        let mut text = state.to_owned();
        if status != self.status {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str("STATUS=");
            text.push_str(&status);
            self.status = status;
        }
        if !text.is_empty() {
            self.manager.send(&text);
        }
    }
}

/// Returns the interval between two signals for the values of the environment.
fn interval(timeout_us: Option<&str>, pid: Option<&str>) -> Result<Option<Duration>, SwitchError> {
    let Some(timeout_us) = timeout_us else {
        return Ok(None);
    };
    if pid.is_some_and(|pid| pid != std::process::id().to_string()) {
        return Ok(None);
    }
    match timeout_us.parse::<u64>() {
        Ok(timeout_us) if timeout_us > 0 => Ok(Duration::from_micros(timeout_us).checked_div(2)),
        _ => Err(wrong(
            WATCHDOG_USEC,
            format!(
                "'{timeout_us}' is not a number of microseconds above 0 (unset it to run without a watchdog)"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a listening socket and its messages so far.
    fn received(socket: &UnixDatagram) -> Vec<String> {
        let mut messages = Vec::new();
        let mut buffer = [0; 1024];
        while let Ok(length) = socket.recv(&mut buffer) {
            messages.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        }
        messages
    }

    fn manager() -> (tempfile::TempDir, UnixDatagram, ServiceManager) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let manager = ServiceManager::at(path.as_os_str()).unwrap();
        (directory, socket, manager)
    }

    #[test]
    fn states_arrive_at_a_socket_with_a_path() {
        let (_directory, socket, manager) = manager();
        manager.ready("forwarding between 2 ports");
        manager.stopping();
        assert_eq!(
            received(&socket),
            [
                "READY=1\nSTATUS=forwarding between 2 ports",
                "STOPPING=1\nSTATUS=stopping"
            ]
        );
    }

    #[test]
    fn states_arrive_at_an_abstract_socket() {
        let name = format!("quietwire-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_nonblocking(true).unwrap();
        let manager = ServiceManager::at(OsStr::new(&format!("@{name}"))).unwrap();
        manager.stopping();
        assert_eq!(received(&socket), ["STOPPING=1\nSTATUS=stopping"]);
    }

    #[test]
    fn a_missing_or_full_socket_stops_nothing() {
        ServiceManager::default().ready("alone");
        let (directory, socket, manager) = manager();
        // Far beyond the queue of a datagram socket (net.unix.max_dgram_qlen), each send within its own limit.
        let before = Instant::now();
        let mut sends = 0;
        while before.elapsed() < SEND_MAX {
            manager.stopping();
            sends += 1;
        }
        assert!(sends > 1 && !received(&socket).is_empty());
        drop((socket, directory));
        manager.stopping();
    }

    #[test]
    fn other_addresses_are_refused_with_the_variable() {
        for name in ["vsock:2:1234", "relative", ""] {
            let error = ServiceManager::at(OsStr::new(name)).unwrap_err();
            assert!(error.to_string().contains(SOCKET), "{error}");
            assert_eq!(error.fault(), quietwire_base::Fault::BadInput);
        }
    }

    #[test]
    fn the_timeout_is_halved_and_belongs_to_one_process() {
        let own = std::process::id().to_string();
        let half = Some(Duration::from_secs(5));
        assert_eq!(interval(Some("10000000"), Some(&own)).unwrap(), half);
        assert_eq!(interval(Some("10000000"), None).unwrap(), half);
        assert_eq!(interval(Some("10000000"), Some("1")).unwrap(), None);
        assert_eq!(interval(None, Some(&own)).unwrap(), None);
        for wrong in ["0", "-1", "soon", ""] {
            let error = interval(Some(wrong), None).unwrap_err();
            assert!(error.to_string().contains(WATCHDOG_USEC), "{error}");
        }
    }

    #[test]
    fn no_signal_is_sent_while_one_thread_makes_no_turn() {
        let (_directory, socket, manager) = manager();
        let interval = Duration::from_secs(5);
        let mut watchdog = Watchdog::every(interval, &manager);
        let start = watchdog.sent;
        let mut turn = |seconds: u64, turns: [u64; 2]| {
            let now = start + Duration::from_secs(seconds);
            let threads = [(3, turns[0]), (4, turns[1])];
            watchdog.turn(now, threads.into_iter(), || "fine".to_owned());
            received(&socket)
        };
        assert!(turn(4, [1, 1]).is_empty());
        assert_eq!(turn(5, [2, 2]), ["WATCHDOG=1\nSTATUS=fine"]);
        // CPU 4 stands still, and is named once.
        assert!(turn(9, [3, 2]).is_empty());
        let late = ["STATUS=not forwarding: qw-fwd-4 made no progress"];
        assert_eq!(turn(10, [4, 2]), late);
        assert!(turn(11, [5, 2]).is_empty());
        // The signal follows as soon as it runs again.
        assert_eq!(turn(12, [6, 3]), ["WATCHDOG=1\nSTATUS=fine"]);
        assert!(turn(16, [7, 4]).is_empty());
        assert_eq!(turn(17, [8, 5]), ["WATCHDOG=1"]);
    }

    #[test]
    fn the_control_thread_wakes_up_for_the_signal() {
        let manager = ServiceManager::default();
        let short = Watchdog::every(Duration::from_millis(20), &manager);
        assert!((1..=20).contains(&short.wait_ms(100)));
        let long = Watchdog::every(Duration::from_secs(500), &manager);
        assert_eq!(long.wait_ms(100), 100);
    }
}
