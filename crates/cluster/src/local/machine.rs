// SPDX-License-Identifier: Apache-2.0
//! The machine as the programs of the local cluster see it: directories that are their own, settings of the kernel that kubelet may write
//! without effect, and a network without a connection to the host's.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use quietwire_base::Deadline;
use quietwire_base::supervised::Command;

use super::ADDRESS;
use super::error::{LocalError, io_error};

/// Root directory of kubelet. Its device plugins are always there.
pub(super) const KUBELET_ROOT: &str = "/var/lib/kubelet";
/// Logs of containers.
pub(super) const POD_LOGS: &str = "/var/log/pods";
/// Directory of containerd.
pub(super) const CONTAINERD: &str = "/run/containerd-local";
/// Directories that are empty for the cluster and end with it.
pub(super) const OWN: [&str; 4] = ["/run", "/var/log", KUBELET_ROOT, "/var/lib/cni"];
/// Directories that must exist below them.
const BELOW: [&str; 3] = ["/run/lock", "/run/netns", POD_LOGS];
/// Settings of the whole machine with the values that kubelet requires (Kubernetes, pkg/util/sysctl). Files with these values hide them.
const SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];
/// Time for a command of ip(8).
const TIMEOUT: Duration = Duration::from_secs(20);

const NONE: Option<&str> = None;

/// Returns the directory that hides a file of the machine from the cluster; `None` if the cluster sees it. The state directory is visible.
pub(super) fn hidden_by(file: &Path, state: &Path) -> Option<&'static str> {
    // The path itself and the one that its links lead to must be visible.
    let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let paths = [file, target.as_path()];
    let is_below = |path: &&Path, own: &str| path.starts_with(own) && !path.starts_with(state);
    let mut all = OWN.into_iter();
    all.find(|own| paths.iter().any(|path| is_below(path, own)))
}

fn mounted(
    source: Option<&str>,
    target: &Path,
    kind: Option<&str>,
    flags: MsFlags,
    options: Option<&str>,
) -> Result<(), LocalError> {
    mount(source, target, kind, flags, options)
        .map_err(|error| io_error(target, "mounting")(error.into()))
}

/// Mounts /proc of the process namespace, the cluster's own directories, and the state directory in them. The caller has a mount namespace
/// of its own.
///
/// # Errors
/// The operating system refuses a step.
pub(super) fn mount_all(state: &Path) -> Result<(), LocalError> {
    let directory = File::open(state).map_err(io_error(state, "opening it"))?;
    let root = Path::new("/");
    let (apart, shared) = (MsFlags::MS_PRIVATE, MsFlags::MS_SHARED);
    mounted(NONE, root, NONE, MsFlags::MS_REC | apart, NONE)?;
    // Mounts of containers follow those of kubelet.
    mounted(NONE, root, NONE, MsFlags::MS_REC | shared, NONE)?;
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let proc = Path::new("/proc");
    mounted(
        Some("proc"),
        proc,
        Some("proc"),
        safe | MsFlags::MS_NOEXEC,
        NONE,
    )?;
    for own in OWN {
        let own = Path::new(own);
        // Images are unpacked below /run, with set-user-ID programs and devices as they have them.
        mounted(
            Some("tmpfs"),
            own,
            Some("tmpfs"),
            MsFlags::empty(),
            Some("mode=755"),
        )?;
    }
    for below in BELOW.map(Path::new) {
        fs::create_dir_all(below).map_err(io_error(below, "making it"))?;
    }
    fs::create_dir_all(state).map_err(io_error(state, "making it"))?;
    let opened = format!("/proc/self/fd/{}", directory.as_raw_fd());
    mounted(Some(&opened), state, NONE, MsFlags::MS_BIND, NONE)?;
    hide_settings(Path::new("/proc/sys"), Path::new("/run/settings"))
}

/// Hides settings of the machine, as far as the kernel has them.
fn hide_settings(settings: &Path, copies: &Path) -> Result<(), LocalError> {
    for (name, value) in SETTINGS {
        let setting = settings.join(name);
        if !setting.exists() {
            continue;
        }
        let copy = copies.join(name);
        let parent = copy.parent().unwrap_or(copies);
        fs::create_dir_all(parent).map_err(io_error(parent, "making it"))?;
        fs::write(&copy, format!("{value}\n")).map_err(io_error(&copy, "writing it"))?;
        let source = copy.to_string_lossy();
        mounted(Some(&source), &setting, NONE, MsFlags::MS_BIND, NONE)?;
    }
    Ok(())
}

/// Gives the network namespace a loopback interface and one with the address of the node.
///
/// # Errors
/// A command of ip(8) fails.
pub(super) fn make_network() -> Result<(), LocalError> {
    let address = format!("{ADDRESS}/24");
    let commands: [&[&str]; 6] = [
        &["link", "set", "lo", "up"],
        &[
            "link", "add", "node0", "type", "veth", "peer", "name", "node1",
        ],
        &["link", "set", "node1", "up"],
        &["address", "add", &address, "dev", "node0"],
        &["link", "set", "node0", "up"],
        // kubelet and the API server expect a default route. No host has this address.
        &[
            "route",
            "add",
            "default",
            "via",
            "198.18.0.254",
            "dev",
            "node0",
        ],
    ];
    for words in commands {
        let command = Command::new("ip").args(words);
        let failed = |reason: String| LocalError::Failed {
            what: format!("ip {}", words.join(" ")),
            reason,
        };
        let finished = command.run(Deadline::after(TIMEOUT));
        let finished = finished.map_err(|error| failed(error.to_string()))?;
        finished.into_result().map_err(failed)?;
    }
    Ok(())
}

/// Returns those of the cluster's directories that the machine lacks: mount points that are made, and removed with the cluster.
pub(super) fn absent() -> Vec<PathBuf> {
    let own = OWN.iter().map(PathBuf::from);
    own.filter(|path| !path.exists()).collect()
}
