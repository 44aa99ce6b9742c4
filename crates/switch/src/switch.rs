// SPDX-License-Identifier: Apache-2.0
//! A switch from start to end: memory, ports, threads, and everything given back.

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
use crate::service::{self, Chores};
use crate::threads;

/// How often threads are looked at.
const WATCH: Duration = Duration::from_millis(50);

/// A running switch. It ends when its stop flag is set or it is dropped.
#[derive(Debug)]
pub struct Switch {
    threads: Threads,
}

/// The control and the service thread, ended and joined when this is dropped.
#[derive(Debug)]
struct Threads {
    stop: Arc<AtomicBool>,
    running: Vec<(&'static str, JoinHandle<()>)>,
}

impl Threads {
    /// Ends all threads; the names of those that panicked.
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
    /// Starts to forward. `stop` ends the switch when it is set, from anywhere. Returns when all ports are open and all
    /// threads run; on an error everything is given back first.
    ///
    /// The calling thread is moved to the control CPUs and stays there.
    ///
    /// # Errors
    /// What is wrong with the settings, the machine, or a port.
    pub fn start(
        settings: &Settings,
        plan: &Plan,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, SwitchError> {
        if !geteuid().is_root() {
            return Err(SwitchError::Lacks(
                "the switch needs memory and devices that only root gets; run as root".to_owned(),
            ));
        }
        // First, since it makes the directory that ports' sockets may be in, and finds a switch that runs already.
        let socket = ControlSocket::listen(&plan.control_socket)?;
        let metrics = plan.metrics.map(MetricsServer::listen).transpose()?;
        take_control_cpus(plan)?;
        let eal = Eal::start(&eal_options(plan)?)?;
        let shared = Arc::new(Shared {
            stop: Arc::clone(stop),
            ..Shared::default()
        });
        let engine = Engine::start(&eal, plan, &shared)?;
        let chores = Chores::default();
        chores.set(&engine.bridges);
        let mut threads = Threads {
            stop: Arc::clone(stop),
            running: Vec::new(),
        };
        start_service(&mut threads, &engine, chores.clone())?;
        let mut controller = Controller::new(settings.clone(), engine, chores);
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

    /// Waits until the stop flag is set, ends all threads and gives everything back.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] when a thread ended by itself.
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
                what: "it ended before it was told to; this is a fault of the switch".to_owned(),
            }),
        }
    }
}

/// Checks that every CPU may be used, and moves the calling thread, which DPDK's threads inherit from, to the
/// control CPUs.
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
                    place: format!("{role}-cpus"),
                    what: format!(
                        "CPU {cpu} is not for this process: its cpuset forbids it; choose others, or move the process to another cpuset"
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
    chores: Chores,
) -> Result<(), SwitchError> {
    let (shared, started) = (Arc::clone(&engine.shared), engine.started);
    let layer3 = engine.layer3.clone();
    let pinned = engine.plan.pinning == Pinning::Roles;
    let cpus = threads::numbers(&engine.plan.service_cpus);
    let handle = threads::spawn(
        threads::SERVICE,
        move || if pinned { thread::pin(&cpus) } else { Ok(()) },
        move || service::run(&chores, &layer3, &shared, started),
    )?;
    threads.running.push((threads::SERVICE, handle));
    Ok(())
}

/// The control thread has the engine: when it ends, forwarding threads end, and then ports close.
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
            if !controller.look_around() {
                return;
            }
        }
    };
    // The main thread makes it, so it is on the control CPUs already.
    let handle = threads::spawn(threads::CONTROL, || Ok(()), body)?;
    threads.running.push((threads::CONTROL, handle));
    Ok(())
}
