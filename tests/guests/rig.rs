// SPDX-License-Identifier: Apache-2.0
//! A switch on the host between the tester's two ports and a guest's ports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use quietwire_base::wait_until;
use quietwire_host::threads::online_cpus;
use quietwire_host::{CpuId, CpuList};
use quietwire_lab::guest::{
    AcceleratorChoice, GuestPort, GuestSpec, Image, PortBackend, ReadySignal, SocketRole,
};
use quietwire_packet::MacAddress;
use serde_json::Value;
use tempfile::TempDir;

use crate::switches::{Carrier, is_testers_own_loss};

pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

pub(crate) fn quietwire() -> &'static str {
    env!("CARGO_BIN_EXE_quietwire")
}

/// Allows one guest at a time: emulated guests use all CPUs.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn image() -> Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE
        .get_or_init(|| Image::build(Path::new(quietwire())).unwrap())
        .clone()
}

/// Returns a guest with two vCPUs and no port.
pub(crate) fn spec() -> GuestSpec {
    let online = online_cpus(Path::new("/")).unwrap();
    let first = online.first().unwrap();
    let last = online.iter().next_back().unwrap();
    GuestSpec {
        name: "vnf".to_owned(),
        memory_mib: 640,
        huge_pages: false,
        vcpu_cpus: vec![first, last],
        service_cpus: CpuList::from_iter([first]),
        pinned: true,
        ports: Vec::new(),
        accelerator: AcceleratorChoice::Auto,
        kernel_options: Vec::new(),
        ready_signal: ReadySignal::Agent,
        namespace: None,
        ready_timeout: DEADLINE,
    }
}

/// A running switch: the tester's first port is connected to the guest's first, and the second to the second.
pub(crate) struct Rig {
    directory: TempDir,
    switch: Child,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let last: CpuId = online_cpus(Path::new("/"))
            .unwrap()
            .iter()
            .next_back()
            .unwrap();
        let log = fs::File::create(path("switch.log")).unwrap();
        let switch = Command::new(quietwire())
            .args([
                "switch",
                "run",
                "--huge-pages",
                "never",
                "--memory-mib",
                "192",
                "--idle",
                // A vCPU of the guest shares the CPU.
                "sleep",
            ])
            .args(["--forwarding-cpus", &last.0.to_string()])
            .args([
                "--port",
                &format!("t0=memif:{}?role=server", path("t0.sock")),
            ])
            .args([
                "--port",
                &format!("t1=memif:{}?role=server", path("t1.sock")),
            ])
            .args(["--port", &format!("g0=vhost:{}", path("g0.sock"))])
            .args(["--port", &format!("g1=vhost:{}", path("g1.sock"))])
            .args(["--cross-connect", "t0,g0", "--cross-connect", "t1,g1"])
            .args([
                "--control-socket",
                &path("control.sock"),
                "--exit-with-parent",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut rig = Self { directory, switch };
        let is_up = wait_until(DEADLINE, || {
            let sockets = ["control.sock", "t0.sock", "t1.sock", "g0.sock", "g1.sock"];
            sockets.iter().all(|name| rig.path(name).exists())
                || !matches!(rig.switch.try_wait(), Ok(None))
        });
        let ended = rig.switch.try_wait().unwrap();
        assert!(is_up && ended.is_none(), "{ended:?}: {}", rig.printed());
        rig
    }

    fn printed(&self) -> String {
        fs::read_to_string(self.path("switch.log")).unwrap_or_default()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a guest with two ports at this switch.
    pub(crate) fn spec(&self) -> GuestSpec {
        let port = |index: u64| GuestPort {
            backend: PortBackend::VhostUser {
                socket: self.path(&format!("g{index}.sock")),
                role: SocketRole::Client,
            },
            queues: 1,
            ring_size: 256,
            mac: MacAddress::from_u64(0x0200_0000_0010 + index),
        };
        GuestSpec {
            ports: vec![port(0), port(1)],
            ..spec()
        }
    }

    /// Sends frames from both ports of the tester until all frames of a trial return undamaged; returns how many it sent. A
    /// trial with loss is repeated only if a kernel carries the frames, or if the trial is invalid.
    pub(crate) fn every_frame_comes_back(
        &self,
        what: &str,
        carrier: Carrier,
        traffic: &str,
    ) -> u64 {
        const TRIALS: usize = 4;
        let file = self.path("traffic.toml");
        fs::write(&file, traffic).unwrap();
        let mut observed = Vec::new();
        let began = Instant::now();
        while observed.len() < TRIALS && began.elapsed() < DEADLINE {
            let port = |index: u64| {
                format!(
                    "memif:{}?role=client",
                    self.path(&format!("t{index}.sock")).display()
                )
            };
            let output = Command::new(quietwire())
                .args(["generate", "--port", &port(0), "--port", &port(1)])
                .arg("--traffic")
                .arg(&file)
                .args([
                    "--rate",
                    "800",
                    "--duration",
                    "500ms",
                    "--warm-up",
                    "100ms",
                    "--drain",
                    "500ms",
                ])
                .args([
                    "--memory-mib",
                    "192",
                    "--no-huge",
                    "--isolation",
                    "none",
                    "--json",
                ])
                .output()
                .unwrap();
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_invalid = printed.contains("the trial is invalid");
            assert!(
                is_invalid || output.status.success(),
                "{what}: {printed}{}",
                self.printed()
            );
            let result: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(result["damaged_frames"], 0, "{what}: {result}");
            if carrier == Carrier::SharedMemory && !is_testers_own_loss(&result) {
                assert_eq!(result["lost_frames"], 0, "{what}: {result}");
            }
            if is_invalid {
                continue;
            }
            let offered = result["offered_frames"].as_u64().unwrap();
            if offered > 300 && result["received_frames"] == offered {
                return offered;
            }
            observed.push(result);
        }
        panic!("{what}: no trial without loss: {observed:?}");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.switch.kill();
        let _ = self.switch.wait();
    }
}
