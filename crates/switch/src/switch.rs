// SPDX-License-Identifier: Apache-2.0
//! Lifecycle of a switch: allocates memory, opens ports, starts threads, releases everything on exit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::unistd::geteuid;
use quietwire_dpdk::{Eal, EalOptions, HugePages, PortUri, thread};

use crate::config::{self, Pinning, Plan, Settings};
use crate::control::{ControlSocket, Controller, Server};
use crate::engine::Engine;
use crate::error::SwitchError;
use crate::forward::Shared;
use crate::metrics::MetricsServer;
use crate::service::{self, Housekeeping};
use crate::threads;

/// Interval between checks of the threads.
const WATCH: Duration = Duration::from_millis(50);

/// A running switch. It stops when its stop flag is set or it is dropped.
#[derive(Debug)]
pub struct Switch {
    threads: Threads,
}

/// The control and the service thread, stopped and joined on drop.
#[derive(Debug)]
struct Threads {
    stop: Arc<AtomicBool>,
    running: Vec<(&'static str, JoinHandle<()>)>,
}

impl Threads {
    /// Stops all threads. Returns the names of those that panicked.
    fn end(&mut self) -> Vec<&'static str> {
        self.stop.store(true, Ordering::Relaxed);
        let mut panicked = Vec::new();
        for (name, handle) in self.running.drain(..) {
            handle.thread().unpark();
            if handle.join().is_err() {
                panicked.push(name);
            }
        }
        panicked
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end();
    }
}

impl Switch {
    /// Starts forwarding. Setting `stop` stops the switch. Returns once all ports are open and all threads run; on an error, everything is
    /// released first.
    ///
    /// The calling thread is moved to the control CPUs and stays there.
    ///
    /// # Errors
    /// Invalid settings, or an error of the machine or of a port.
    pub fn start(
        settings: &Settings,
        plan: &Plan,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, SwitchError> {
        if !geteuid().is_root() {
            return Err(SwitchError::MissingPrerequisite(
                "the switch requires root for memory and devices (run as root)".to_owned(),
            ));
        }
        // First, because it creates the directory that ports' sockets may be in, and detects a running switch.
        let socket = ControlSocket::listen(&plan.control_socket)?;
        let metrics = plan.metrics.map(MetricsServer::listen).transpose()?;
        take_control_cpus(plan)?;
        let eal = Eal::start(&eal_options(plan)?)?;
        let shared = Arc::new(Shared {
            stop: Arc::clone(stop),
            ..Shared::default()
        });
        let engine = Engine::start(&eal, plan, &shared)?;
        let housekeeping = Housekeeping::default();
        housekeeping.set(&engine.bridges);
        let mut threads = Threads {
            stop: Arc::clone(stop),
            running: Vec::new(),
        };
        start_service(&mut threads, &engine, housekeeping.clone())?;
        let mut controller = Controller::new(settings.clone(), engine, housekeeping);
        controller.load()?;
        start_control(
            &mut threads,
            Server::new(socket),
            metrics,
            controller,
            &shared,
        )?;
        threads::keep_to_roles(plan)?;
        Ok(Self { threads })
    }

    /// Waits until the stop flag is set, stops all threads and releases everything.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] if a thread ended unexpectedly.
    pub fn wait(mut self) -> Result<(), SwitchError> {
        let ended = loop {
            if self.threads.stop.load(Ordering::Relaxed) {
                break None;
            }
            let ended = self
                .threads
                .running
                .iter()
                .find(|(_, handle)| handle.is_finished());
            if let Some((name, _)) = ended
                && !self.threads.stop.load(Ordering::Relaxed)
            {
                break Some(*name);
            }
            std::thread::park_timeout(WATCH);
        };
        let panicked = self.threads.end();
        match panicked.into_iter().next().or(ended) {
            None => Ok(()),
            Some(name) => Err(SwitchError::Thread {
                name: name.to_owned(),
                what: "the thread ended unexpectedly (this is a bug in the switch)".to_owned(),
            }),
        }
    }
}

/// Checks that every CPU is available to the process, and moves the calling thread to the control CPUs. DPDK's threads inherit its
/// affinity.
fn take_control_cpus(plan: &Plan) -> Result<(), SwitchError> {
    if plan.pinning == Pinning::None {
        return Ok(());
    }
    let before = thread::affinity()?;
    for (role, cpus) in [
        ("forwarding", &plan.forwarding_cpus),
        ("service", &plan.service_cpus),
        ("control", &plan.control_cpus),
    ] {
        for cpu in cpus.iter() {
            if thread::pin(&[cpu.0]).is_err() {
                thread::pin(&before)?;
                return Err(SwitchError::Config {
                    location: format!("{role}-cpus"),
                    what: format!(
                        "CPU {cpu} is not in the cpuset of this process (use other CPUs, or move the process to another cpuset)"
                    ),
                });
            }
        }
    }
    thread::pin(&threads::numbers(&plan.control_cpus))?;
    Ok(())
}

fn eal_options(plan: &Plan) -> Result<EalOptions, SwitchError> {
    let control_cpus = match plan.pinning {
        Pinning::Roles => threads::numbers(&plan.control_cpus),
        Pinning::None => thread::affinity()?,
    };
    let pci_devices = plan.ports.iter().filter_map(|port| match &port.uri {
        PortUri::Pci { address, .. } => Some(address.clone()),
        _ => None,
    });
    Ok(EalOptions {
        control_cpus,
        memory_mib: plan.memory_mib,
        huge_pages: match plan.huge_pages {
            config::HugePages::Auto => HugePages::Auto,
            config::HugePages::Never => HugePages::Never,
            config::HugePages::Require => HugePages::Require,
        },
        pci_devices: pci_devices.collect(),
        file_prefix: format!("qw-switch-{}", std::process::id()),
    })
}

fn start_service(
    threads: &mut Threads,
    engine: &Engine,
    housekeeping: Housekeeping,
) -> Result<(), SwitchError> {
    let (shared, started) = (Arc::clone(&engine.shared), engine.started);
    let layer3 = engine.layer3.clone();
    let pinned = engine.plan.pinning == Pinning::Roles;
    let cpus = threads::numbers(&engine.plan.service_cpus);
    let handle = threads::spawn(
        threads::SERVICE,
        move || if pinned { thread::pin(&cpus) } else { Ok(()) },
        move || service::run(&housekeeping, &layer3, &shared, started),
    )?;
    threads.running.push((threads::SERVICE, handle));
    Ok(())
}

/// Starts the control thread, which owns the engine. When it ends, forwarding threads end first, and then ports close.
fn start_control(
    threads: &mut Threads,
    mut server: Server,
    mut metrics: Option<MetricsServer>,
    mut controller: Controller,
    shared: &Arc<Shared>,
) -> Result<(), SwitchError> {
    let shared = Arc::clone(shared);
    let body = move || {
        while !shared.stop.load(Ordering::Relaxed) {
            let others = metrics.iter().flat_map(MetricsServer::interests);
            server.turn(controller.wait_ms(), others, &mut |request| {
                controller.answer(request)
            });
            if let Some(metrics) = &mut metrics {
                metrics.turn(&mut || controller.metrics());
            }
            if !controller.run_periodic_work() {
                return;
            }
        }
    };
    // The main thread creates it, so it inherits the control CPUs.
    let handle = threads::spawn(threads::CONTROL, || Ok(()), body)?;
    threads.running.push((threads::CONTROL, handle));
    Ok(())
}
