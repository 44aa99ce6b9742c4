// SPDX-License-Identifier: Apache-2.0
//! The first process in the namespaces of the local cluster. The kernel ends all others with it (pid_namespaces(7)). It sets the
//! namespaces up, and reaps processes whose parents have ended, until its standard input ends.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use quietwire_base::durable::replace;

use super::error::{LocalError, io_error};
use super::machine::{make_network, mount_all};

/// File below the state directory with the number of this process in the process namespace of the host. It exists when the namespaces are
/// set up.
pub(super) const READY: &str = "inside";
/// Interval at which ended processes are reaped, ms.
const REAP_MS: u16 = 200;

/// Sets the namespaces up that this process is the first of, and keeps them until its standard input ends.
///
/// # Errors
/// A step of the set-up fails, or this process is not the first of a process namespace.
pub fn run(state: &Path) -> Result<(), LocalError> {
    if std::process::id() != 1 {
        return Err(LocalError::Failed {
            what: "the namespaces of the local cluster".to_owned(),
            reason: "started outside of them (use `quietwire cluster up --local`)".to_owned(),
        });
    }
    // The file system that is mounted there still shows the host's process namespace.
    let own = Path::new("/proc/self");
    let number = fs::read_link(own).map_err(io_error(own, "reading the link"))?;
    mount_all(state)?;
    make_network()?;
    let ready = state.join(READY);
    replace(&ready, number.to_string_lossy().as_bytes(), 0o600)
        .map_err(io_error(&ready, "writing it"))?;
    let input = std::io::stdin();
    loop {
        let mut ends = [PollFd::new(input.as_fd(), PollFlags::empty())];
        match poll(&mut ends, PollTimeout::from(REAP_MS)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(io_error(Path::new("stdin"), "waiting")(error.into())),
        }
        let ended = PollFlags::POLLHUP | PollFlags::POLLERR;
        let observed = ends[0].revents();
        if observed.is_some_and(|observed| observed.intersects(ended)) {
            return Ok(());
        }
        reap();
    }
}

/// Reaps all children that have ended.
fn reap() {
    let any = Pid::from_raw(-1);
    // Without children there is an error, which is no problem.
    while let Ok(status) = waitpid(any, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_the_first_changes_nothing() {
        let state = tempfile::tempdir().unwrap();
        let error = run(state.path()).unwrap_err().to_string();
        assert!(error.contains("cluster up --local"), "{error}");
        assert!(!state.path().join(READY).exists());
    }
}
