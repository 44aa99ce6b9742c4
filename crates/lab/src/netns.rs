// SPDX-License-Identifier: Apache-2.0
//! Location of an application: the host, or a network namespace.

use std::fs::File;
use std::path::PathBuf;
use std::thread::scope;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use quietwire_base::is_file_name;
use quietwire_base::supervised::WITH_PARENT;

use crate::error::{LabError, io_error};
use crate::spawn::require;

/// Directory in which `ip netns` keeps named namespaces (ip-netns(8)).
const NAMESPACES: &str = "/run/netns";

/// Location of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NetNs {
    /// The namespace of this process.
    #[default]
    Current,
    /// The network namespace of this name (`ip netns add NAME`).
    Namespace(String),
}

impl NetNs {
    /// Returns the namespace of this name, or this process's namespace without a name.
    ///
    /// # Errors
    /// [`LabError::NoNamespace`].
    pub fn of(namespace: Option<&str>) -> Result<Self, LabError> {
        let Some(name) = namespace else {
            return Ok(Self::Current);
        };
        let place = Self::Namespace(name.to_owned());
        match place.path() {
            Some(path) if is_file_name(name) && path.exists() => Ok(place),
            _ => Err(LabError::NoNamespace(name.to_owned())),
        }
    }

    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Current => None,
            Self::Namespace(name) => Some(PathBuf::from(NAMESPACES).join(name)),
        }
    }

    /// Returns the prefix of a command that runs another command there, and ends it if the process that started it is killed.
    ///
    /// # Errors
    /// [`LabError::MissingProgram`].
    pub fn command(&self, words: &[String]) -> Result<Vec<String>, LabError> {
        require("setpriv", "util-linux")?;
        let mut command = WITH_PARENT.map(str::to_owned).to_vec();
        if let Some(path) = self.path() {
            require("nsenter", "util-linux")?;
            command.extend(["nsenter".to_owned(), format!("--net={}", path.display())]);
        }
        command.extend_from_slice(words);
        Ok(command)
    }

    /// Runs a function there, on a new thread: files that it opens stay in that namespace, even for other threads. Below /sys it sees the
    /// interfaces of the namespace, as with `ip netns exec`.
    ///
    /// # Errors
    /// The namespace does not exist any more, or may not be entered.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let Some(path) = self.path() else {
            return Ok(work());
        };
        let namespace = File::open(&path).map_err(io_error(&path, "opening the namespace"))?;
        let there = || {
            setns(&namespace, CloneFlags::CLONE_NEWNET)
                .and_then(|()| show_interfaces())
                .map_err(|error| io_error(&path, "entering the namespace")(error.into()))?;
            Ok(work())
        };
        let outcome = scope(|scope| scope.spawn(there).join());
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Gives the calling thread, and those that it starts, a view of /sys with the interfaces of its network namespace
/// (sysfs(5): what a mount shows is that of the namespace in which it was made).
fn show_interfaces() -> nix::Result<()> {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    let apart = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(NONE, "/", NONE, apart, NONE)?;
    match mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), NONE) {
        // The mount there already belongs to this namespace, as below `ip netns exec` (fs/namespace.c).
        Err(Errno::EBUSY) => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_namespace_is_reported_by_name() {
        for name in ["absent-namespace", "", "..", "a/b"] {
            let error = NetNs::of(Some(name)).unwrap_err();
            assert_eq!(error.fault(), quietwire_base::Fault::BadInput);
            assert!(error.to_string().contains("ip netns"), "{error}");
        }
        assert_eq!(NetNs::of(None).unwrap(), NetNs::Current);
        assert_eq!(NetNs::Current.enter(|| 7).unwrap(), 7);
    }

    #[test]
    fn a_command_ends_with_its_starter() {
        let words = ["iperf3".to_owned(), "-s".to_owned()];
        let place = NetNs::Namespace("left".to_owned());
        let command = place.command(&words).unwrap().join(" ");
        assert_eq!(
            command,
            "setpriv --pdeathsig KILL nsenter --net=/run/netns/left iperf3 -s"
        );
    }
}
