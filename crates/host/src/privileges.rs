// SPDX-License-Identifier: Apache-2.0
//! Reduction of the rights of this process: user, capabilities(7), bounding set, and execution of privileged programs.

use std::fmt;

use nix::sys::prctl;
use nix::unistd::{Gid, Uid, initgroups, setresgid, setresuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities,
};

/// Rights that could not be reduced.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// The user does not exist.
    #[error(
        "user '{0}' does not exist (create it with `useradd --system {0}`, or use another one)"
    )]
    NoSuchUser(String),
    /// No user can have this name (useradd(8)).
    #[error(
        "'{}' is not the name of a user (use the name of a user of this machine)",
        .0.escape_debug()
    )]
    NotAUser(String),
    /// The system refuses.
    #[error("cannot reduce the rights of this process: {call}: {cause}")]
    System {
        /// The call.
        call: &'static str,
        /// Its error.
        cause: std::io::Error,
    },
}

fn failed<E: Into<std::io::Error>>(call: &'static str) -> impl FnOnce(E) -> PrivilegeError {
    move |cause| PrivilegeError::System {
        call,
        cause: cause.into(),
    }
}

/// A user of this system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: String,
    uid: Uid,
    gid: Gid,
}

impl User {
    /// Finds a user by name (getpwnam(3)).
    ///
    /// # Errors
    /// [`PrivilegeError::NotAUser`], [`PrivilegeError::NoSuchUser`], or the error of the lookup.
    pub fn find(name: &str) -> Result<Self, PrivilegeError> {
        let is_refused = |letter: char| {
            letter.is_whitespace() || letter.is_control() || matches!(letter, ':' | '/')
        };
        if name.is_empty() || name.contains(is_refused) {
            return Err(PrivilegeError::NotAUser(name.to_owned()));
        }
        let found = nix::unistd::User::from_name(name).map_err(failed("getpwnam"))?;
        let user = found.ok_or_else(|| PrivilegeError::NoSuchUser(name.to_owned()))?;
        Ok(Self {
            name: user.name,
            uid: user.uid,
            gid: user.gid,
        })
    }

    /// Returns the numbers of the user and of its group.
    #[must_use]
    pub fn numbers(&self) -> (u32, u32) {
        (self.uid.as_raw(), self.gid.as_raw())
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(CapabilitySet);

impl Capabilities {
    /// Configuration of network interfaces: taps, veth pairs, interfaces that AF_PACKET and AF_XDP use, virtual functions.
    pub const NET_ADMIN: Self = Self(CapabilitySet::NET_ADMIN);

    /// AF_PACKET, AF_XDP, and cards that the kernel's driver shares with a process.
    pub const NET_RAW: Self = Self(CapabilitySet::NET_RAW);

    /// Memory of AF_XDP and of network cards, beyond `RLIMIT_MEMLOCK`.
    pub const IPC_LOCK: Self = Self(CapabilitySet::IPC_LOCK);

    /// libxdp looks for the XDP program of an interface among all programs (bpf(2), `BPF_PROG_GET_FD_BY_ID`); programs of kernel forwarding
    /// (`BPF_PROG_LOAD`); taps and ends of veth pairs in other network namespaces, also those of the pairs of AF_XDP (setns(2)); physical
    /// addresses of memory for cards without IOMMU (`/proc/self/pagemap`).
    pub const SYS_ADMIN: Self = Self(CapabilitySet::SYS_ADMIN);

    /// Capabilities that ports of all kinds require, also if they are opened later.
    pub const PORTS: Self = Self::NET_ADMIN
        .union(Self::NET_RAW)
        .union(Self::IPC_LOCK)
        .union(Self::SYS_ADMIN);

    /// Those of [`Self::PORTS`], and `SYS_NICE` for the real-time priority of a tester's threads, which each trial starts.
    pub const TESTER: Self = Self(Self::PORTS.0.union(CapabilitySet::SYS_NICE));

    /// No capability: threads that only use what other threads have opened.
    pub const NONE: Self = Self(CapabilitySet::empty());

    /// Capability of a tester's thread that gives up its real-time priority. The kernel requires `SYS_NICE` for that, because child threads
    /// must not inherit the priority (sched(7), `SCHED_RESET_ON_FORK`).
    pub const REALTIME: Self = Self(CapabilitySet::SYS_NICE);

    /// Returns the capabilities of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0.union(other.0))
    }

    /// Returns true if this set has all capabilities of another one.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0.contains(other.0)
    }

    /// Returns the capabilities of a mask, such as `CapEff` of `/proc/PID/status`.
    #[must_use]
    pub const fn of_mask(mask: u64) -> Self {
        Self(CapabilitySet::from_bits_retain(mask))
    }
}

/// Names without `CAP_`, separated by commas; `none` for the empty set.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter_names().map(|(name, _)| name).collect();
        if names.is_empty() {
            return f.write_str("none");
        }
        f.write_str(&names.join(","))
    }
}

/// Prevents this thread and those that it starts later from gaining rights by executing a program (`PR_SET_NO_NEW_PRIVS`).
///
/// # Errors
/// The kernel's error.
pub fn refuse_new_privileges() -> Result<(), PrivilegeError> {
    prctl::set_no_new_privs().map_err(failed("prctl(PR_SET_NO_NEW_PRIVS)"))
}

/// Becomes a user, if one is given, and gives up all capabilities that are not in `kept`. Capabilities belong to a thread: threads that run
/// already keep theirs, or lose them all if the user changes from root to another one (capabilities(7)). Later threads inherit those of
/// the caller.
///
/// # Errors
/// The kernel's error. Some of the rights may be gone then.
pub fn reduce(user: Option<&User>, kept: Capabilities) -> Result<(), PrivilegeError> {
    let current = capabilities(None).map_err(failed("capget"))?;
    let kept = kept.0.intersection(current.permitted);
    clear_ambient_capability_set().map_err(failed("prctl(PR_CAP_AMBIENT)"))?;
    // Without SETPCAP the bounding set stays as it is. no_new_privs has the same effect on programs that are executed.
    if current.effective.contains(CapabilitySet::SETPCAP) {
        for (_, capability) in CapabilitySet::all().iter_names() {
            let is_kept = kept.contains(capability);
            // A capability that the kernel does not know is an error, and is not in the set.
            if !is_kept && capability_is_in_bounding_set(capability).unwrap_or(false) {
                remove_capability_from_bounding_set(capability)
                    .map_err(failed("prctl(PR_CAPBSET_DROP)"))?;
            }
        }
    }
    if let Some(user) = user {
        // A change of the user clears it (prctl(2), PR_SET_PDEATHSIG).
        let parent_death = prctl::get_pdeathsig().map_err(failed("prctl(PR_GET_PDEATHSIG)"))?;
        let name = std::ffi::CString::new(user.name.as_str()).unwrap_or_default();
        set_keep_capabilities(true).map_err(failed("prctl(PR_SET_KEEPCAPS)"))?;
        initgroups(&name, user.gid).map_err(failed("initgroups"))?;
        setresgid(user.gid, user.gid, user.gid).map_err(failed("setresgid"))?;
        setresuid(user.uid, user.uid, user.uid).map_err(failed("setresuid"))?;
        set_keep_capabilities(false).map_err(failed("prctl(PR_SET_KEEPCAPS)"))?;
        prctl::set_pdeathsig(parent_death).map_err(failed("prctl(PR_SET_PDEATHSIG)"))?;
    }
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(failed("capset"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_the_names_of_the_kernel() {
        let names = "NET_ADMIN,NET_RAW,IPC_LOCK,SYS_ADMIN";
        assert_eq!(Capabilities::PORTS.to_string(), names);
        assert_eq!(
            Capabilities::TESTER.to_string(),
            "NET_ADMIN,NET_RAW,IPC_LOCK,SYS_ADMIN,SYS_NICE"
        );
        assert_eq!(Capabilities::of_mask(1 << 12).to_string(), "NET_ADMIN");
        assert_eq!(Capabilities::of_mask(0).to_string(), "none");
        assert_eq!(Capabilities::NONE.to_string(), "none");
        assert_eq!(Capabilities::REALTIME.to_string(), "SYS_NICE");
        let both = Capabilities::NET_RAW.union(Capabilities::SYS_ADMIN);
        assert_eq!(both.to_string(), "NET_RAW,SYS_ADMIN");
        assert!(both.contains(Capabilities::NET_RAW) && both.contains(Capabilities::NONE));
        assert!(!both.contains(Capabilities::PORTS));
    }

    #[test]
    fn an_unknown_user_is_named() {
        let error = User::find("quietwire-nobody").unwrap_err();
        assert!(error.to_string().contains("'quietwire-nobody'"), "{error}");
        for (name, shown) in [
            ("", "''"),
            ("a b", "'a b'"),
            ("a\0", "'a\\0'"),
            ("a:", "'a:'"),
        ] {
            let error = User::find(name).unwrap_err().to_string();
            assert!(error.starts_with(shown), "{error}");
            assert!(!error.contains("useradd"), "{error}");
        }
        assert_eq!(User::find("root").unwrap().numbers(), (0, 0));
    }

    #[test]
    fn a_thread_keeps_the_given_capabilities_only_and_passes_them_on() {
        // Capabilities and the bounding set belong to a thread; other tests are not affected.
        let status = std::thread::spawn(|| {
            refuse_new_privileges().unwrap();
            reduce(None, Capabilities::PORTS).unwrap();
            // A second time, now without the right to change the bounding set.
            reduce(None, Capabilities::PORTS).unwrap();
            let read = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
            std::thread::spawn(read).join().unwrap()
        });
        let status = status.join().unwrap();
        for key in ["CapPrm", "CapEff", "CapBnd"] {
            let line = format!("{key}:\t0000000000207000");
            assert!(status.contains(&line), "{line}: {status}");
        }
        assert!(status.contains("CapInh:\t0000000000000000"), "{status}");
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    }

    #[test]
    fn a_thread_without_capabilities_takes_none_from_the_others() {
        let read = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let before = read();
        let status = std::thread::spawn(move || {
            reduce(None, Capabilities::NONE).unwrap();
            read()
        });
        let status = status.join().unwrap();
        for key in ["CapPrm", "CapEff"] {
            let line = format!("{key}:\t0000000000000000");
            assert!(status.contains(&line), "{line}: {status}");
        }
        let capabilities = |status: &str| -> Vec<String> {
            let lines = status.lines().filter(|line| line.starts_with("Cap"));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(capabilities(&read()), capabilities(&before));
    }
}
