// SPDX-License-Identifier: Apache-2.0
//! Options and opening of the built-in tester, common to the commands that send frames.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use quietwire_base::Seccomp;
use quietwire_dpdk::{Eal, EalOptions, HugePages, PortUri, file_prefix};
use quietwire_host::CpuList;
use quietwire_host::settings::REALTIME_RUNTIME;
use quietwire_host::threads::online_cpus;
use quietwire_tester::{
    Calibrations, CalibrationsError, FrameAccess, IpVersion, Limits, Preparation,
    RECEIVE_RING_SIZE, Tester, TesterIdle, TesterOptions, TimeStampFile, begin_clock,
};

use crate::exit::{Usage, require_memory, require_root};
use crate::output::{check_place, make_parent, unwritable};
use crate::units::seccomp_values;

/// Timeout for a peer to connect.
pub(super) const LINK_DEADLINE: Duration = Duration::from_secs(10);

const TIME_STAMPS: &str = "--timestamps";

/// Value of `--ip`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Ip {
    #[value(name = "4")]
    V4,
    #[value(name = "6")]
    V6,
}

impl From<Ip> for IpVersion {
    fn from(ip: Ip) -> Self {
        match ip {
            Ip::V4 => Self::V4,
            Ip::V6 => Self::V6,
        }
    }
}

/// Value of `--idle`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum IdleArg {
    /// Poll again at once.
    Poll,
    /// Sleep for 50 µs or more.
    Sleep,
}

impl From<IdleArg> for TesterIdle {
    fn from(idle: IdleArg) -> Self {
        match idle {
            IdleArg::Poll => Self::Poll,
            IdleArg::Sleep => Self::Sleep,
        }
    }
}

/// Lets results cite the calibrations in a file: the named file, or the default file if it exists.
pub(super) fn load_calibrations(tester: &mut Tester, given: Option<&PathBuf>) -> Result<()> {
    let Some(path) = given.cloned().or_else(Calibrations::default_path) else {
        return Ok(());
    };
    match tester.cite_file(&path, given.is_some()) {
        // HOME may be that of another user, as after `su` or `sudo -u`.
        Err(CalibrationsError::System { error, .. })
            if given.is_none() && error.kind() == ErrorKind::PermissionDenied =>
        {
            tracing::warn!(
                "results cite no calibration, because {} cannot be read: {error} (name a file with --calibration)",
                path.display()
            );
            Ok(())
        }
        cited => Ok(cited?),
    }
}

/// Checks the path of `--timestamps` before the tester opens its ports.
pub(super) fn check_time_stamps(path: Option<&PathBuf>) -> Result<()> {
    let Some(path) = path else {
        return Ok(());
    };
    check_place(TIME_STAMPS, path)?;
    make_parent(TIME_STAMPS, path)
}

/// Configures the tester to write the times of its low-rate frames to the file of `--timestamps`.
pub(super) fn record_time_stamps(tester: &mut Tester, path: Option<&PathBuf>) -> Result<()> {
    if let Some(path) = path {
        let file = TimeStampFile::create(path);
        tester.record_time_stamps(file.map_err(|error| unwritable(TIME_STAMPS, path, &error))?);
    }
    Ok(())
}

/// Resources of the tester.
#[derive(Debug, Args)]
pub(super) struct OwnTesterArgs {
    /// CPUs of the tester, like 3,4,8-11 or 0x60; one CPU can serve both ports. Results cite a calibration only of the same
    /// CPUs.
    #[arg(long, value_name = "LIST", default_value = "0")]
    cpus: CpuList,
    /// Real-time priority of the tester's threads (SCHED_FIFO), 1 to 99; 0 for none. Default: 50 if CPUs are isolated,
    /// otherwise 0. The kernel stops real-time threads for 50 ms of each second unless kernel.sched_rt_runtime_us is -1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=99))]
    realtime_priority: Option<u8>,
    /// Action of the tester's threads while no frame is due and none arrives. With `sleep`, other threads get a part of their CPUs, and
    /// latencies include the time until the thread wakes up.
    #[arg(long, value_enum, default_value = "poll")]
    idle: IdleArg,
    /// Descriptors in each transmit ring, a power of two from 32 to 16384.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(super) ring_size: u16,
    /// Descriptors in each receive ring, if the peer does not decide it: a power of two from 32 to 16384.
    #[arg(long, value_name = "N", default_value_t = RECEIVE_RING_SIZE)]
    pub(super) receive_ring_size: u16,
    /// Memory for frames, MiB, at least 1.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) memory_mib: u32,
    /// Do not use huge pages.
    #[arg(long)]
    pub(super) no_huge: bool,
    /// Seccomp filters, which restrict the system calls of the threads that send and receive. [default: enforce]
    #[arg(long, value_name = "MODE", value_parser = seccomp_values())]
    seccomp: Option<Seccomp>,
}

impl OwnTesterArgs {
    /// Returns the numbers of the CPUs after a check that all are online.
    pub(super) fn cpus(&self) -> Result<Vec<u32>> {
        if self.cpus.is_empty() {
            bail!(Usage(
                "--cpus is empty (name a CPU for the tester)".to_owned()
            ));
        }
        let online = online_cpus(Path::new("/"))?;
        let absent = self.cpus.difference(&online);
        if !absent.is_empty() {
            bail!(Usage(format!(
                "--cpus: CPU {absent} is not online (online: {online})"
            )));
        }
        Ok(self.cpus.iter().map(|cpu| cpu.0).collect())
    }

    /// Returns the CPUs.
    pub(super) fn cpu_list(&self) -> &CpuList {
        &self.cpus
    }

    /// Returns the chosen real-time priority, where 0 means none; `None` without a choice.
    pub(super) fn chosen_priority(&self) -> Option<u8> {
        self.realtime_priority
    }

    /// Checks the requirements of these ports that can be checked before opening: different interfaces, root and memory.
    pub(super) fn check_machine(&self, ports: &[PortUri]) -> Result<()> {
        check_distinct(ports)?;
        if ports.iter().any(is_of_the_machine) {
            require_root("opening a network interface")?;
        }
        require_memory(self.memory_mib)
    }

    /// Warns if the kernel may throttle a real-time tester that is busy for `busy_s` seconds.
    pub(super) fn warn_of_throttling(&self, busy_s: f64) {
        if self.realtime_priority.is_some_and(|priority| priority > 0) {
            warn_of_throttling(busy_s);
        }
    }

    /// Starts DPDK on the tester's CPUs.
    pub(super) fn start_dpdk(&self, cpus: &[u32], ports: &[PortUri]) -> Result<Eal> {
        begin_clock();
        Ok(Eal::start(&EalOptions {
            control_cpus: cpus.to_vec(),
            memory_mib: self.memory_mib,
            huge_pages: if self.no_huge {
                HugePages::Never
            } else {
                HugePages::Auto
            },
            pci_devices: pci_devices(ports),
            file_prefix: file_prefix("tester"),
        })?)
    }

    /// Opens the tester with its ports, p0 and p1.
    pub(super) fn open(
        &self,
        eal: &Eal,
        cpus: Vec<u32>,
        ports: &[PortUri],
        frame_size_max: u16,
        preparation: Preparation,
    ) -> Result<Tester> {
        warn_of_idle_cpus(idle_cpus(&cpus, ports));
        let ports: Vec<(String, PortUri)> = ports
            .iter()
            .enumerate()
            .map(|(index, uri)| (format!("p{index}"), uri.clone()))
            .collect();
        let options = TesterOptions {
            cpus,
            realtime_priority: self.realtime_priority.filter(|priority| *priority > 0),
            ring_size: self.ring_size,
            receive_ring_size: self.receive_ring_size,
            frame_size_max,
            limits: Limits::default(),
            preparation,
            idle: self.idle.into(),
            frame_access: FrameAccess::default(),
        };
        let mut tester = Tester::open(eal, "tester", &ports, options)?;
        tester.set_seccomp(self.seccomp.unwrap_or_default());
        Ok(tester)
    }
}

/// Returns the CPUs that no pair of queues uses: the tester has one thread for each pair at most.
fn idle_cpus<'cpus>(cpus: &'cpus [u32], ports: &[PortUri]) -> &'cpus [u32] {
    let pairs: usize = ports.iter().map(|uri| usize::from(uri.queues())).sum();
    cpus.get(pairs..).unwrap_or_default()
}

fn warn_of_idle_cpus(idle: &[u32]) {
    if !idle.is_empty() {
        tracing::warn!(
            "--cpus: the tester does not use CPUs {idle:?}, because each pair of queues uses one CPU (add queues=N to the URIs of the ports, and as many --flows)"
        );
    }
}

/// Warns if the tester has more than one CPU: one thread runs both ends of connections.
pub(super) fn warn_of_one_thread(cpus: &[u32]) {
    if let [first, _, ..] = cpus {
        tracing::warn!("--cpus: connections use CPU {first} only");
    }
}

/// Warns if the kernel will throttle a real-time tester during the trial (sched(7), "Limiting the CPU usage of
/// real-time and deadline processes").
fn warn_of_throttling(busy_s: f64) {
    let number = |path: &str| {
        std::fs::read_to_string(path)
            .ok()?
            .trim()
            .parse::<f64>()
            .ok()
    };
    let Some(runtime_us) = number(REALTIME_RUNTIME) else {
        return;
    };
    if is_throttled(busy_s, runtime_us) {
        tracing::warn!(
            "kernel.sched_rt_runtime_us is {runtime_us}, so the kernel may stop this real-time tester once per second, \
             which looks like loss. If another CPU stays free for the system, \
             `sysctl -w kernel.sched_rt_runtime_us=-1` prevents this (from Linux 6.12 on, also keep other threads off the tester's CPU)"
        );
    }
}

/// Returns whether the kernel stops a real-time thread that is busy for this time. A negative runtime is no limit.
fn is_throttled(busy_s: f64, runtime_us: f64) -> bool {
    runtime_us >= 0.0 && busy_s * 1e6 > runtime_us
}

/// Refuses an interface or a card that is named twice: each port would receive a part of the other's frames.
fn check_distinct(ports: &[PortUri]) -> Result<()> {
    let place = |uri: &PortUri| match uri {
        PortUri::Pci { address, .. } => Some(format!("card {address}")),
        PortUri::Tap {
            interface, netns, ..
        } => Some(match netns {
            Some(netns) => format!("interface {interface} of the namespace {netns}"),
            None => format!("interface {interface}"),
        }),
        PortUri::Veth { interface, .. } => Some(format!("interface {interface}")),
        uri => Some(format!("interface {}", uri.interface()?)),
    };
    let places: Vec<String> = ports.iter().filter_map(place).collect();
    for (index, place) in places.iter().enumerate() {
        if places.iter().take(index).any(|before| before == place) {
            bail!(Usage(format!(
                "--port: {place} is given twice, but each port of a tester is a different one (name another for the second port, or give \
                 one --port if the device sends frames back)"
            )));
        }
    }
    Ok(())
}

fn is_of_the_machine(uri: &PortUri) -> bool {
    let is_created = matches!(uri, PortUri::Tap { .. } | PortUri::Veth { .. });
    is_created || uri.interface().is_some() || matches!(uri, PortUri::Pci { .. })
}

fn pci_devices(ports: &[PortUri]) -> Vec<String> {
    ports.iter().filter_map(PortUri::pci_device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_beyond_the_pairs_of_queues_are_idle() {
        let ports = |queues: [u16; 2]| {
            let uris = queues.map(|queues| format!("memif:/a.sock?role=client&queues={queues}"));
            uris.map(|uri| uri.parse::<PortUri>().unwrap())
        };
        assert_eq!(idle_cpus(&[2, 3], &ports([1, 1])), [0; 0]);
        assert_eq!(idle_cpus(&[2, 3, 4, 5], &ports([1, 1])), [4, 5]);
        assert_eq!(idle_cpus(&[2, 3, 4, 5], &ports([2, 2])), [0; 0]);
        assert_eq!(idle_cpus(&[2, 3, 4, 5], &ports([1, 2])), [5]);
        assert_eq!(idle_cpus(&[2, 3], &ports([1, 1])[..1]), [3]);
    }

    #[test]
    fn a_trial_that_is_busy_for_longer_than_the_runtime_is_throttled() {
        const DEFAULT_US: f64 = 950_000.0;
        assert!(is_throttled(0.951, DEFAULT_US));
        assert!(!is_throttled(0.95, DEFAULT_US));
        assert!(!is_throttled(10.0, -1.0));
    }
}
