// SPDX-License-Identifier: Apache-2.0
//! A switch from start to end: memory, ports, threads, and everything given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use quietwire_dpdk::thread::{self, Registered};
use quietwire_dpdk::{
    Burst, Eal, EalOptions, HugePages, Mempool, Port, PortHandle, PortOptions, PortUri, RxQueue,
    TxQueue,
};

use crate::bridge::Decisions;
use crate::config::{self, Group, Pinning, Plan};
use crate::control::{ControlSocket, Server};
use crate::counters::ThreadCounters;
use crate::error::SwitchError;
use crate::fdb::Fdb;
use crate::forward::{self, Input, Output, Shared, Stage, Worker};
use crate::queues::{self, Queues};
use crate::service::{self, Sweep};
use crate::show::{BridgeView, Show};
use crate::threads;

/// Buffers that a thread's cache may hold (one and a half times its size), and some for bursts on their way.
const BUFFERS_A_THREAD: u32 = 1024;
/// Buffers that an AF_XDP socket keeps for the kernel (ETH_AF_XDP_NUM_BUFFERS of its driver).
const BUFFERS_AF_XDP: u32 = 4096;
const BUFFERS_SPARE: u32 = 1024;
/// How long a thread may take to be ready.
const READY: Duration = Duration::from_secs(10);
/// How often threads are looked at.
const WATCH: Duration = Duration::from_millis(50);
/// How long the control thread waits for clients before it looks around.
const CONTROL_WAIT_MS: u16 = 100;
/// How often the CPUs of all threads are verified.
const VERIFY: Duration = Duration::from_secs(5);

/// A running switch. It ends when its stop flag is set or it is dropped.
#[derive(Debug)]
pub struct Switch {
    threads: Threads,
}

/// Threads, ended and joined when this is dropped.
#[derive(Debug)]
struct Threads {
    stop: Arc<AtomicBool>,
    running: Vec<(String, JoinHandle<()>)>,
}

impl Threads {
    /// Makes a thread, and waits until it has done `prepare`. What that gives is kept until `body` ends.
    fn spawn<T>(
        &mut self,
        name: &str,
        prepare: impl FnOnce() -> Result<T, quietwire_dpdk::Error> + Send + 'static,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), SwitchError> {
        let failed = |what: String| SwitchError::Thread {
            name: name.to_owned(),
            what,
        };
        let (ready, is_ready) = mpsc::sync_channel(1);
        let handle = Builder::new()
            .name(name.to_owned())
            .spawn(move || match prepare() {
                Ok(_kept) => {
                    // Nobody listens any more only when the wait was given up, and the stop flag is set then.
                    drop(ready.send(Ok(())));
                    body();
                }
                Err(error) => drop(ready.send(Err(error))),
            })
            .map_err(|cause| failed(format!("could not be made: {cause}")))?;
        self.running.push((name.to_owned(), handle));
        is_ready
            .recv_timeout(READY)
            .map_err(|_| failed(format!("not ready within {} seconds", READY.as_secs())))?
            .map_err(SwitchError::from)
    }

    /// Ends all threads; the names of those that panicked.
    fn end(&mut self) -> Vec<String> {
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
    /// What is wrong with the plan, the machine, or a port.
    pub fn start(plan: &Plan, stop: &Arc<AtomicBool>) -> Result<Self, SwitchError> {
        if !geteuid().is_root() {
            return Err(SwitchError::Lacks(
                "the switch needs memory and devices that only root gets; run as root".to_owned(),
            ));
        }
        let queues = queues::deal(plan)?;
        // First, since it makes the directory that ports' sockets may be in, and finds a switch that runs already.
        let socket = ControlSocket::listen(&plan.control_socket)?;
        take_control_cpus(plan)?;
        let eal = Eal::start(&eal_options(plan)?)?;
        let shared = Arc::new(Shared {
            stop: Arc::clone(stop),
            ..Shared::default()
        });
        let bridges = make_bridges(plan);
        let opened = open_ports(&eal, plan, &queues)?;
        let workers = make_workers(&eal, plan, &queues, opened.queues, &bridges);
        let counters = workers
            .iter()
            .map(|worker| Arc::clone(&worker.counters))
            .collect();

        let mut threads = Threads {
            stop: Arc::clone(stop),
            running: Vec::new(),
        };
        let started = Instant::now();
        let show = Show::new(
            plan,
            opened.handles,
            counters,
            bridges.clone(),
            Arc::clone(&shared),
            started,
        );
        start_service(&mut threads, plan, bridges, &shared, started)?;
        start_forwarding(&mut threads, plan, &eal, workers, &shared)?;
        start_control(&mut threads, plan, Server::new(socket), show, &shared)?;
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
                break Some(name.clone());
            }
            std::thread::park_timeout(WATCH);
        };
        let panicked = self.threads.end();
        match panicked.into_iter().next().or(ended) {
            None => Ok(()),
            Some(name) => Err(SwitchError::Thread {
                name,
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
        PortUri::Pci { address } => Some(address.clone()),
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

fn make_bridges(plan: &Plan) -> Vec<BridgeView> {
    let view = |group: &Group| match group {
        Group::CrossConnect(_) => None,
        Group::Bridge(bridge) => Some(BridgeView {
            name: bridge.name.clone(),
            ports: bridge.ports.clone(),
            fdb: Arc::new(Fdb::new(bridge.max_entries, bridge.ageing_s)),
            aged: Arc::new(AtomicU64::new(0)),
        }),
    };
    plan.groups.iter().filter_map(view).collect()
}

/// Queues of one port: its receive queue, and transmit queues in the order of [`Queues::senders`].
struct PortQueues {
    rx: RxQueue,
    tx: Vec<TxQueue>,
}

struct Opened {
    queues: Vec<PortQueues>,
    handles: Vec<PortHandle>,
}

fn open_ports(eal: &Eal, plan: &Plan, queues: &Queues) -> Result<Opened, SwitchError> {
    let options = |port: usize| PortOptions {
        name: plan.ports[port].name.clone(),
        rx_queues: 1,
        tx_queues: queues.senders[port].len().max(1) as u16,
        rx_ring_size: plan.rx_ring_size,
        tx_ring_size: plan.tx_ring_size,
        frame_size_max: plan.frame_size_max,
    };
    let mut buffers = BUFFERS_SPARE + plan.forwarding_cpus.len() as u32 * BUFFERS_A_THREAD;
    for (index, port) in plan.ports.iter().enumerate() {
        let tx_queues = u32::from(options(index).tx_queues);
        buffers += u32::from(plan.rx_ring_size) + tx_queues * u32::from(plan.tx_ring_size);
        if matches!(port.uri, PortUri::AfXdp { .. }) {
            buffers += BUFFERS_AF_XDP;
        }
    }
    let pool = Mempool::new(eal, "qw-switch", buffers, options(0).data_room())?;
    let mut opened = Opened {
        queues: Vec::new(),
        handles: Vec::new(),
    };
    for (index, port) in plan.ports.iter().enumerate() {
        let mut started = Port::open(eal, &port.uri, &options(index), &pool)?.start()?;
        let Some(rx) = started.rx.pop() else {
            return Err(SwitchError::Lacks(format!(
                "port '{}' has no receive queue",
                port.name
            )));
        };
        opened.queues.push(PortQueues { rx, tx: started.tx });
        opened.handles.push(started.handle);
    }
    Ok(opened)
}

fn make_workers(
    eal: &Eal,
    plan: &Plan,
    queues: &Queues,
    ports: Vec<PortQueues>,
    bridges: &[BridgeView],
) -> Vec<Worker> {
    let mut workers: Vec<Worker> = plan
        .forwarding_cpus
        .iter()
        .map(|_| Worker {
            inputs: Vec::new(),
            outputs: plan.ports.iter().map(|_| None).collect(),
            received: Burst::new(eal),
            decisions: Decisions::default(),
            idle: plan.idle,
            counters: Arc::new(ThreadCounters::new(plan.ports.len())),
        })
        .collect();
    let groups = queues::groups(plan);
    for (port, PortQueues { rx, tx }) in ports.into_iter().enumerate() {
        if let Some(stage) = groups[port].and_then(|group| make_stage(port, group, bridges)) {
            workers[queues.reader[port]]
                .inputs
                .push(Input { rx, port, stage });
        }
        for (thread, tx) in queues.senders[port].iter().zip(tx) {
            workers[*thread].outputs[port] = Some(Output {
                tx,
                waiting: Burst::new(eal),
            });
        }
    }
    workers
}

fn make_stage(port: usize, group: &Group, bridges: &[BridgeView]) -> Option<Stage> {
    match group {
        Group::CrossConnect([a, b]) => Some(Stage::CrossConnect {
            output: if *a == port { *b } else { *a },
        }),
        Group::Bridge(plan) => {
            let bridge = bridges.iter().find(|bridge| bridge.name == plan.name)?;
            Some(Stage::Bridge {
                fdb: Arc::clone(&bridge.fdb),
                others: plan
                    .ports
                    .iter()
                    .copied()
                    .filter(|other| *other != port)
                    .collect(),
            })
        }
    }
}

fn start_forwarding(
    threads: &mut Threads,
    plan: &Plan,
    eal: &Eal,
    workers: Vec<Worker>,
    shared: &Arc<Shared>,
) -> Result<(), SwitchError> {
    for (cpu, mut worker) in plan.forwarding_cpus.iter().zip(workers) {
        let (eal, shared) = (eal.clone(), Arc::clone(shared));
        let pinned = plan.pinning == Pinning::Roles;
        threads.spawn(
            &threads::forwarding_name(cpu.0),
            move || {
                if pinned {
                    thread::pin(&[cpu.0])?;
                }
                Registered::new(&eal)
            },
            move || forward::run(&mut worker, &shared),
        )?;
    }
    Ok(())
}

fn start_service(
    threads: &mut Threads,
    plan: &Plan,
    bridges: Vec<BridgeView>,
    shared: &Arc<Shared>,
    started: Instant,
) -> Result<(), SwitchError> {
    let shared = Arc::clone(shared);
    let pinned = plan.pinning == Pinning::Roles;
    let cpus = threads::numbers(&plan.service_cpus);
    let mut sweeps: Vec<Sweep> = bridges
        .into_iter()
        .map(|bridge| Sweep::new(bridge.fdb, bridge.aged))
        .collect();
    threads.spawn(
        threads::SERVICE,
        move || if pinned { thread::pin(&cpus) } else { Ok(()) },
        move || service::run(&mut sweeps, &shared, started),
    )
}

fn start_control(
    threads: &mut Threads,
    plan: &Plan,
    mut server: Server,
    mut show: Show,
    shared: &Arc<Shared>,
) -> Result<(), SwitchError> {
    let shared = Arc::clone(shared);
    let plan = plan.clone();
    let body = move || {
        let mut verified = Instant::now();
        while !shared.stop.load(Ordering::Relaxed) {
            server.turn(CONTROL_WAIT_MS, &mut |subject| show.answer(subject));
            if verified.elapsed() >= VERIFY {
                verified = Instant::now();
                if let Err(error) = threads::keep_to_roles(&plan) {
                    tracing::warn!("{error}");
                }
            }
        }
    };
    // The main thread makes it, so it is on the control CPUs already.
    threads.spawn(threads::CONTROL, || Ok(()), body)
}
