// SPDX-License-Identifier: Apache-2.0
//! A switch under a service manager: readiness, watchdog, end.

use std::collections::VecDeque;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::rig::{Namespace, Switch, quietwire, until};

/// The socket of the test, in place of the service manager's.
struct Manager {
    socket: UnixDatagram,
    observed: VecDeque<String>,
}

impl Manager {
    fn new(directory: &TempDir) -> Self {
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        Self {
            socket,
            observed: VecDeque::new(),
        }
    }

    /// Returns the next line of a notification that has arrived.
    fn next(&mut self) -> Option<String> {
        if self.observed.is_empty() {
            let mut buffer = [0; 1024];
            let length = self.socket.recv(&mut buffer).ok()?;
            let text = std::str::from_utf8(&buffer[..length]).unwrap();
            self.observed.extend(text.lines().map(str::to_owned));
        }
        self.observed.pop_front()
    }

    /// Waits for a line that begins so.
    fn waits_for(&mut self, beginning: &str) {
        until(beginning, || {
            let line = self.next()?;
            line.starts_with(beginning).then_some(())
        });
    }
}

#[test]
fn the_watchdog_is_fed_only_while_every_forwarding_thread_runs() {
    let directory = TempDir::new().unwrap();
    let mut manager = Manager::new(&directory);
    let namespace = Namespace::new("notify");
    let mut command = namespace.command(quietwire());
    command.env("NOTIFY_SOCKET", directory.path().join("notify"));
    command.env("WATCHDOG_USEC", "1000000");
    let ports = ["a", "b"].map(|name| {
        let path = directory.path().join(name).with_extension("sock");
        (name, format!("memif:{}?role=server", path.display()))
    });
    let arguments = ["--cross-connect", "a,b"];
    let switch = Switch::start_by(command, directory.path(), &ports, &arguments);

    // A signal of the watchdog may come first.
    manager.waits_for("READY=1");
    manager.waits_for("STATUS=forwarding between 2 ports on CPUs ");
    manager.waits_for("WATCHDOG=1");
    let threads = switch.show("threads");
    let forwarding = threads
        .iter()
        .find(|thread| thread["role"] == "forwarding")
        .unwrap();
    let thread = Pid::from_raw(i32::try_from(forwarding["tid"].as_i64().unwrap()).unwrap());
    // It sends SIGSTOP to this thread. Without a tracer, the signal would stop all threads of the process.
    ptrace::attach(thread).unwrap();
    let stopped = waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
    assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    manager.waits_for("STATUS=not forwarding: qw-fwd-");
    // The control thread runs, and still sends nothing.
    assert_eq!(switch.ports().len(), 2);
    assert_eq!(manager.next(), None);
    ptrace::detach(thread, None).unwrap();
    manager.waits_for("WATCHDOG=1");
    assert_eq!(switch.end(), Some(0));
    manager.waits_for("STOPPING=1");
}
