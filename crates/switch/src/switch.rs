// SPDX-License-Identifier: Apache-2.0
//! Lifecycle of a switch: allocates memory, opens ports, starts threads, releases everything on exit.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::unistd::geteuid;
use quietwire_base::Deadline;
use quietwire_dpdk::seccomp::{Filter, Installed};
use quietwire_dpdk::{Eal, EalOptions, HugePages, PeerNamespaces, PortUri, file_prefix, thread};
use quietwire_host::privileges::{self, User};

use crate::config::{self, Pinning, Plan, PortPlan, Settings};
use crate::control::{ControlSocket, Controller, Server};
use crate::engine::Engine;
use crate::error::SwitchError;
use crate::forward::Shared;
use crate::metrics::MetricsServer;
use crate::nat_log;
use crate::replication::Replication;
use crate::report::Role;
use crate::rights::Rights;
use crate::service::{self, Housekeeping};
use crate::service_manager::{ServiceManager, Watchdog};
use crate::threads;

/// Interval between checks of the threads.
const WATCH: Duration = Duration::from_millis(50);
/// Timeout for the end of the control and the service thread. The former waits for the forwarding threads.
const END: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(5);
/// Name of the thread that watches the start.
const STARTING: &str = "qw-start";

/// A running switch. It stops when its stop flag is set or it is dropped.
#[derive(Debug)]
pub struct Switch {
    threads: Threads,
    manager: ServiceManager,
    /// Of the thread that started the switch.
    _filter: Installed,
}

/// Ends the process if a start does not end in time after a request to stop: memory and devices may take long.
#[derive(Debug)]
struct StartWatch {
    is_over: Arc<AtomicBool>,
    thread: std::thread::Thread,
}

impl StartWatch {
    fn begin(stop: &Arc<AtomicBool>) -> Result<Self, SwitchError> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (stop, over) = (Arc::clone(stop), Arc::clone(&is_over));
        let watch = move || {
            let mut deadline = None;
            while !over.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    let deadline = *deadline.get_or_insert_with(|| Deadline::after(END));
                    if deadline.has_passed() {
                        tracing::error!(
                            "ended by force, because the start did not end within {} s after the request to stop; sockets and other files of ports may remain (the next start replaces them)",
                            END.as_secs()
                        );
                        std::process::exit(1);
                    }
                }
                std::thread::park_timeout(WATCH);
            }
        };
        let spawned = std::thread::Builder::new()
            .name(STARTING.to_owned())
            .spawn(watch);
        match spawned {
            Ok(handle) => Ok(Self {
                is_over,
                thread: handle.thread().clone(),
            }),
            Err(cause) => Err(SwitchError::Thread {
                name: STARTING.to_owned(),
                what: format!("cannot start the thread: {cause}"),
            }),
        }
    }
}

impl Drop for StartWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// The control and the service thread, stopped and joined on drop.
#[derive(Debug)]
struct Threads {
    stop: Arc<AtomicBool>,
    running: Vec<(&'static str, JoinHandle<()>)>,
    /// Names of forwarding threads that did not end.
    left: Arc<Mutex<Vec<String>>>,
    /// True if a forwarding thread ended unexpectedly.
    has_failed: Arc<AtomicBool>,
}

/// Ends of threads.
#[derive(Debug, Default)]
struct Ended {
    panicked: Vec<&'static str>,
    /// Threads that did not end in time.
    left: Vec<String>,
}

impl Threads {
    /// Stops all threads. Returns the names of those that panicked or did not end.
    fn end(&mut self) -> Ended {
        self.stop.store(true, Ordering::Relaxed);
        for (_, handle) in &self.running {
            handle.thread().unpark();
        }
        let deadline = Deadline::after(END);
        let mut ended = Ended::default();
        for (name, handle) in self.running.drain(..) {
            let is_finished = || handle.is_finished().then_some(());
            if deadline.poll(PAUSE, is_finished).is_none() {
                ended.left.push(name.to_owned());
            } else if handle.join().is_err() {
                ended.panicked.push(name);
            }
        }
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        ended.left.append(&mut left);
        if !ended.left.is_empty() {
            tracing::error!(
                "threads {} do not end, and are left to the end of the process",
                ended.left.join(", ")
            );
        }
        ended
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end();
    }
}

impl Switch {
    /// Starts forwarding. Setting `stop` stops the switch, at once if `woken` is readable then, otherwise within 0.1 s. Returns once all
    /// ports are open and all threads run; on an error, everything is released first.
    ///
    /// The calling thread is moved to the control CPUs and stays there, and its system calls are restricted to those of control threads.
    ///
    /// # Errors
    /// Invalid settings, or an error of the machine or of a port.
    pub fn start(
        settings: &Settings,
        plan: &Plan,
        stop: &Arc<AtomicBool>,
        woken: OwnedFd,
    ) -> Result<Self, SwitchError> {
        if !geteuid().is_root() {
            return Err(SwitchError::MissingPrerequisite(
                "the switch requires root for memory and devices (run as root)".to_owned(),
            ));
        }
        // The switch executes no program, and one that an attacker makes it execute must not gain rights by its file's mode.
        privileges::refuse_new_privileges()?;
        let user = plan.user.as_deref().map(User::find).transpose()?;
        let manager = ServiceManager::from_environment()?;
        let watchdog = Watchdog::from_environment(&manager)?;
        // First, because it creates the directory that ports' sockets may be in, and detects a running switch.
        let socket = ControlSocket::listen(&plan.control_socket)?;
        let metrics = plan.metrics.map(MetricsServer::listen).transpose()?;
        let nat_log = plan.nat_log.as_deref().map(nat_log::open).transpose()?;
        let collector = plan.nat_log_collector.map(nat_log::connect).transpose()?;
        let replication = plan.replication().map(Replication::open).transpose()?;
        if let Some(user) = &user {
            socket.give_to(user)?;
        }
        // Those of processes with all capabilities, which the switch may not open later.
        let namespaces = PeerNamespaces::open(plan.ports.iter().filter_map(xdp_interface));
        // Before DPDK starts, so that every thread inherits it: no thread can reduce the rights of another one.
        let rights = Rights::of(plan);
        privileges::reduce(user.as_ref(), rights.capabilities())?;
        // For the same reason. Forwarding threads and the service thread add narrower filters.
        let control = threads::task_of(Role::Control);
        let filter = Filter::for_ports(control, plan.seccomp, rights.kinds())?.install()?;
        take_control_cpus(plan)?;
        let starting = StartWatch::begin(stop)?;
        let eal = Eal::start(&eal_options(plan)?)?;
        let shared = Arc::new(Shared {
            stop: Arc::clone(stop),
            ..Shared::default()
        });
        let mut engine = Engine::start(&eal, plan, &shared)?;
        drop(namespaces);
        engine.set_nat_log(nat_log);
        engine.set_nat_collector(collector);
        let housekeeping = Housekeeping::default();
        housekeeping.set(&engine.bridges);
        let mut threads = Threads {
            stop: Arc::clone(stop),
            running: Vec::new(),
            left: Arc::default(),
            has_failed: Arc::default(),
        };
        start_service(&mut threads, &mut engine, housekeeping.clone())?;
        let mut controller = Controller::new(settings.clone(), engine, housekeeping);
        controller.set_replication(replication);
        controller.load()?;
        start_control(
            &mut threads,
            Server::new(socket),
            (metrics, watchdog),
            controller,
            (&shared, woken),
        )?;
        drop(starting);
        threads::keep_to_roles(plan)?;
        manager.ready(&plan.summary());
        Ok(Self {
            threads,
            manager,
            _filter: filter,
        })
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
        self.manager.stopping();
        let Ended { panicked, left } = self.threads.end();
        if !left.is_empty() {
            return Err(SwitchError::Thread {
                name: left.join(", "),
                what: "did not end in time, so sockets and other files of ports may remain (check what keeps the thread from running; the next start replaces the files)".to_owned(),
            });
        }
        let has_failed = self.threads.has_failed.load(Ordering::Relaxed);
        let ended = ended.or(has_failed.then_some(threads::CONTROL));
        match panicked.into_iter().next().or(ended) {
            None => Ok(()),
            Some(name) => Err(SwitchError::Thread {
                name: name.to_owned(),
                what: "the thread ended unexpectedly (this is a bug in the switch)".to_owned(),
            }),
        }
    }
}

/// Returns the interface of an `af-xdp` port.
fn xdp_interface(port: &PortPlan) -> Option<&str> {
    match &port.uri {
        PortUri::AfXdp { interface, .. } => Some(interface),
        _ => None,
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
    let pci_devices = plan.ports.iter().filter_map(|port| port.uri.pci_device());
    Ok(EalOptions {
        control_cpus,
        memory_mib: plan.memory_mib,
        huge_pages: match plan.huge_pages {
            config::HugePages::Auto => HugePages::Auto,
            config::HugePages::Never => HugePages::Never,
            config::HugePages::Require => HugePages::Require,
        },
        pci_devices: pci_devices.collect(),
        file_prefix: file_prefix("switch"),
    })
}

fn start_service(
    threads: &mut Threads,
    engine: &mut Engine,
    housekeeping: Housekeeping,
) -> Result<(), SwitchError> {
    let doze = engine.take_service_doze();
    let (shared, started) = (Arc::clone(&engine.shared), engine.started);
    let layer3 = engine.layer3.clone();
    let pinned = engine.plan.pinning == Pinning::Roles;
    let cpus = threads::numbers(&engine.plan.service_cpus);
    let handle = threads::spawn(
        threads::SERVICE,
        (&threads.stop, engine.plan.seccomp),
        move || if pinned { thread::pin(&cpus) } else { Ok(()) },
        move || service::run(&housekeeping, &layer3, (&shared, doze.as_ref()), started),
    )?;
    threads.running.push((threads::SERVICE, handle));
    Ok(())
}

/// Starts the control thread, which owns the engine. When it ends, forwarding threads end first, and then ports close.
fn start_control(
    threads: &mut Threads,
    mut server: Server,
    (mut metrics, mut watchdog): (Option<MetricsServer>, Option<Watchdog>),
    mut controller: Controller,
    (shared, woken): (&Arc<Shared>, OwnedFd),
) -> Result<(), SwitchError> {
    let seccomp = controller.seccomp();
    let shared = Arc::clone(shared);
    let starter = std::thread::current();
    let left = Arc::clone(&threads.left);
    let has_failed = Arc::clone(&threads.has_failed);
    let body = move || {
        while !shared.stop.load(Ordering::Relaxed) {
            let others = metrics.iter().flat_map(MetricsServer::interests);
            // Nothing is read from it: once it is readable, the switch ends.
            let others = others.chain([PollFd::new(woken.as_fd(), PollFlags::POLLIN)]);
            let wait_ms = controller.wait_ms();
            let wait_ms = watchdog
                .as_ref()
                .map_or(wait_ms, |one| one.wait_ms(wait_ms));
            server.turn(wait_ms, others, &mut |request| controller.answer(request));
            if let Some(metrics) = &mut metrics {
                metrics.turn(&mut || controller.metrics());
            }
            if !controller.run_periodic_work() {
                has_failed.store(true, Ordering::Relaxed);
                shared.stop.store(true, Ordering::Relaxed);
            }
            if let Some(watchdog) = &mut watchdog {
                watchdog.turn(Instant::now(), controller.turns(), || controller.status());
            }
        }
        // It may wait for the end of the switch.
        starter.unpark();
        // Sockets are removed first, so that clients notice the end.
        drop((server, metrics));
        let names = controller.end();
        left.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(names);
    };
    // The main thread creates it, so it inherits the control CPUs.
    let handle = threads::spawn(threads::CONTROL, (&threads.stop, seccomp), || Ok(()), body)?;
    threads.running.push((threads::CONTROL, handle));
    Ok(())
}
