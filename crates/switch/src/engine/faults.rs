// SPDX-License-Identifier: Apache-2.0
//! Changes of a running switch while steps and orders to forwarding threads fail. Each seed is one sequence of requests with its faults.
//! After each reply the configuration is exactly as before or exactly as requested, once all threads reply again all of them do what the
//! configuration says, or the switch stops because a thread has ended, and names the thread.
//!
//! Threads run in the test itself, when they get an order.

mod kept_rules;
mod redirection;
mod thread_cpus;
mod translation;
mod unconfirmed_rules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quietwire_base::Fault;
use quietwire_base::faults::{Random, run_seeds};
use quietwire_host::CpuList;
use serde_json::{Value, json};

use super::threads::{ForwardingThread, StartedThread, ThreadStart};
use super::*;
use crate::bridge_view::entries_of;
use crate::config::Settings;
use crate::control::{Answer, Controller, Machine, Request};
use crate::forward::{Reply, Unanswered, Worker, WorkerCommand};
use crate::service::Housekeeping;
use crate::testing::{eal, read};
use crate::threads::forwarding_name;

/// Seeds of `make test`: a switch takes some 90 ms to be made, changed and dropped.
const SEEDS: u64 = 60;
/// Seeds of `make test` for threads that share the state of connections, and for those with NAT.
const FEW_SEEDS: u64 = 20;
/// Number of seeds that have all ends.
const MANY: u64 = 1000;

/// When steps and orders fail.
#[derive(Clone, Copy, Debug)]
enum When {
    Never,
    /// The one with this number.
    Once(u64),
    /// The one with this number, and all later ones.
    From(u64),
    /// One of this many.
    OneIn(u64),
}

/// Fault of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// The thread has not taken it, and never executes it.
    TakenBack,
    /// The thread executes it later.
    Executing,
    /// The thread has ended.
    Ended,
}

#[derive(Debug)]
struct Script {
    when: When,
    random: Random,
    /// Steps and orders so far.
    count: u64,
    /// Whether threads may end.
    may_end: bool,
    happened: Vec<String>,
}

impl Script {
    fn fails(&mut self, name: &str) -> bool {
        let number = self.count;
        self.count += 1;
        let fails = match self.when {
            When::Never => false,
            When::Once(at) => number == at,
            When::From(at) => number >= at,
            When::OneIn(count) => self.random.below(count) == 0,
        };
        if fails {
            self.happened.push(format!("{number}: {name}"));
        }
        fails
    }

    /// Returns whether a late thread runs again.
    fn wakes(&mut self) -> bool {
        matches!(self.when, When::Never) || self.random.below(3) == 0
    }
}

/// Executed orders: the CPU and the name of each.
type Orders = Arc<Mutex<Vec<(u32, &'static str)>>>;

#[derive(Clone, Debug)]
struct Faults(Arc<Mutex<Script>>, Orders);

impl Faults {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type SharedWorker = Arc<Mutex<Option<Worker>>>;

/// Threads by CPU.
type Workers = Arc<Mutex<BTreeMap<u32, SharedWorker>>>;

/// Makes threads that run in the test.
#[derive(Debug)]
struct TestMaker {
    faults: Faults,
    workers: Workers,
}

impl Maker for TestMaker {
    fn pass(&self, step: &str) -> Result<(), SwitchError> {
        if self.faults.script().fails(step) {
            return Err(SwitchError::MissingPrerequisite(format!(
                "{step}: no memory today"
            )));
        }
        Ok(())
    }

    fn pools(&self) -> &str {
        "qw-faults"
    }

    fn start_thread(&self, start: ThreadStart<'_>) -> Result<StartedThread, SwitchError> {
        let cpu = start.cpu;
        let (_, commands) = crate::forward::line("test", None, &start.shared.stop);
        let worker: SharedWorker = Arc::new(Mutex::new(Some(start.worker(None, commands))));
        self.workers
            .lock()
            .unwrap()
            .insert(cpu, Arc::clone(&worker));
        let thread = TestThread {
            cpu,
            worker,
            late: None,
            faults: self.faults.clone(),
        };
        Ok((Box::new(thread), None))
    }
}

/// A thread that did not reply in time.
#[derive(Debug)]
enum Late {
    /// It is executing this order.
    Executing(WorkerCommand),
    Idle,
}

#[derive(Debug)]
struct TestThread {
    cpu: u32,
    worker: SharedWorker,
    late: Option<Late>,
    faults: Faults,
}

impl TestThread {
    fn error(&self, what: &str) -> SwitchError {
        SwitchError::Thread {
            name: forwarding_name(self.cpu),
            what: what.to_owned(),
        }
    }

    fn execute(&self, order: WorkerCommand) -> Option<Reply> {
        let mut worker = self.worker.lock().unwrap();
        let executed = (self.cpu, name_of(&order));
        let reply = worker.as_mut()?.obey(order);
        self.faults.1.lock().unwrap().push(executed);
        if worker.as_ref().is_some_and(Worker::has_ended) {
            *worker = None;
        }
        Some(reply)
    }
}

impl ForwardingThread for TestThread {
    fn ask(&mut self, order: WorkerCommand) -> Result<Reply, Box<Unanswered>> {
        let unanswered = |order, error| Err(Box::new(Unanswered { order, error }));
        if self.late.is_some() {
            return unanswered(Some(order), self.is_late());
        }
        if self.has_ended() {
            return unanswered(Some(order), self.error("the thread has ended"));
        }
        let lost = {
            let mut script = self.faults.script();
            script.fails(name_of(&order)).then(|| {
                let kinds = if script.may_end { 8 } else { 6 };
                let lost = match script.random.below(kinds) {
                    0..3 => Lost::TakenBack,
                    3..6 => Lost::Executing,
                    _ => Lost::Ended,
                };
                script.happened.push(format!("CPU {}: {lost:?}", self.cpu));
                lost
            })
        };
        match lost {
            None => {
                let reply = self.execute(order);
                reply.ok_or_else(|| unreachable!("it has not ended"))
            }
            Some(Lost::TakenBack) => {
                self.late = Some(Late::Idle);
                unanswered(Some(order), self.is_late())
            }
            Some(Lost::Executing) => {
                self.late = Some(Late::Executing(order));
                unanswered(None, self.is_late())
            }
            Some(Lost::Ended) => {
                *self.worker.lock().unwrap() = None;
                unanswered(Some(order), self.error("the thread has ended"))
            }
        }
    }

    fn collect(&mut self) -> Option<Reply> {
        if self.late.is_none() || !self.faults.script().wakes() {
            return None;
        }
        match self.late.take()? {
            Late::Executing(order) => self.execute(order),
            Late::Idle => Some(Reply::Done),
        }
    }

    fn late_for(&self) -> Option<Duration> {
        self.late.as_ref().map(|_| Duration::from_secs(3))
    }

    fn is_late(&self) -> SwitchError {
        self.error("no reply for 3 s")
    }

    fn has_ended(&self) -> bool {
        let mut worker = self.worker.lock().unwrap();
        // A late thread that executes this order ends without a reply that anything waits for.
        if matches!(self.late, Some(Late::Executing(WorkerCommand::End)))
            && self.faults.script().wakes()
        {
            *worker = None;
        }
        worker.is_none()
    }

    fn leave(&mut self) {}
}

impl Drop for TestThread {
    fn drop(&mut self) {
        *self.worker.lock().unwrap() = None;
    }
}

/// Returns the name of an order. Its contents may be large.
fn name_of(order: &WorkerCommand) -> &'static str {
    match order {
        WorkerCommand::Adopt(_) => "adopt",
        WorkerCommand::Release { .. } => "release",
        WorkerCommand::Stages(_) => "stages",
        WorkerCommand::Output { .. } => "output",
        WorkerCommand::Relay(_) => "relay",
        WorkerCommand::EndRelays { .. } => "end relays",
        WorkerCommand::EndAbandonedRelays => "end abandoned relays",
        WorkerCommand::DrainRelays => "drain relays",
        WorkerCommand::Inherit { .. } => "inherit",
        WorkerCommand::Domain(_) => "domain",
        WorkerCommand::Inject(_) => "inject",
        WorkerCommand::OutputRules(_) => "output rules",
        WorkerCommand::NameFlows(_) => "names",
        WorkerCommand::Inspection(_) => "inspection",
        WorkerCommand::Fragments(_) => "fragments",
        WorkerCommand::Share { .. } => "share",
        WorkerCommand::End => "end",
        _ => "other",
    }
}

/// Two bridged ports with two receive queues each, a cross-connect, and a port of the router.
const START: &str = r#"
pinning = "none"
idle = "sleep"
forwarding-cpus = "2-4"
service-cpus = "0"
control-cpus = "1"
rx-ring-size = 32
tx-ring-size = 32
max-entries = 1024
[[port]]
name = "a"
uri = "null:"
rx-queues = 2
[[port]]
name = "b"
uri = "null:"
rx-queues = 2
tx-queues = 1
[[port]]
name = "c"
uri = "null:"
[[port]]
name = "d"
uri = "null:"
[[port]]
name = "r"
uri = "null:"
[[bridge]]
name = "lan"
ports = ["a", "b"]
[[cross-connect]]
ports = ["c", "d"]
[[interface]]
name = "up"
port = "r"
addresses = ["192.0.2.1/24"]
[[rule]]
name = "no-a"
action = "drop"
port = "a"
protocol = "udp"
"#;

fn online() -> CpuList {
    "0-7".parse().unwrap()
}

struct Rig {
    controller: Controller,
    faults: Faults,
    workers: Workers,
}

/// Returns [`START`] with connection tracking: threads share the state of connections.
fn start_shared() -> String {
    format!("{START}[connections]\nmax-entries = 64\n")
}

impl Rig {
    fn new() -> Self {
        Self::with(START)
    }

    fn with(start: &str) -> Self {
        let script = Script {
            when: When::Never,
            random: Random::new(0),
            count: 0,
            may_end: false,
            happened: Vec::new(),
        };
        let faults = Faults(Arc::new(Mutex::new(script)), Orders::default());
        let workers = Workers::default();
        let maker = TestMaker {
            faults: faults.clone(),
            workers: Arc::clone(&workers),
        };
        let settings = Settings::parse(Path::new("start"), start).unwrap();
        let plan = settings.clone().plan(&online()).unwrap();
        let shared = Arc::default();
        let engine = Engine::start_with(Arc::new(maker), &eal(), &plan, &shared).unwrap();
        let controller = Controller::new(settings, engine, Housekeeping::default()).on(Machine {
            online: || Ok(online()),
            keep_to_roles: |_| Ok(()),
        });
        Self {
            controller,
            faults,
            workers,
        }
    }

    fn state(&mut self) -> State {
        let engine = self.controller.engine();
        let (routes, _) = engine.layer3.settings();
        State {
            config: engine.plan.to_toml().unwrap(),
            routes: routes.iter().map(|one| one.prefix.to_string()).collect(),
        }
    }

    /// Sends a request while steps and orders fail. Returns the reply, and what has happened.
    fn ask(&mut self, request: &Value, when: When, random: Random, may_end: bool) -> Answer {
        *self.faults.script() = Script {
            when,
            random,
            count: 0,
            may_end,
            happened: Vec::new(),
        };
        let request: Request = read(request);
        let answer = self.controller.answer(request);
        self.faults.script().when = When::Never;
        answer
    }

    /// Lets all threads reply again, until they do what the configuration says.
    fn settle(&mut self) {
        const ATTEMPTS: usize = 20;
        let engine = self.controller.engine();
        let settled = (0..ATTEMPTS).map(|_| engine.settle());
        let settled = settled.take_while(Result::is_err).count() < ATTEMPTS;
        assert!(settled && !engine.loose.is_unsettled, "{:?}", engine.loose);
    }

    fn has_ended_thread(&mut self) -> bool {
        let mut threads = self.controller.engine().forwarders.iter();
        threads.any(Forwarder::has_ended)
    }

    /// Checks that all threads do what the plan says, that each queue is in one thread, and that no resource is lost.
    fn check(&mut self) {
        let engine = self.controller.engine();
        let planned: BTreeSet<&str> = engine.plan.ports.iter().map(|one| &*one.name).collect();
        let open: BTreeSet<&str> = engine.ports().map(|(_, slot)| &*slot.plan.name).collect();
        assert_eq!(open, planned, "open ports");
        let cpus: BTreeSet<u32> = engine
            .plan
            .forwarding_cpus
            .iter()
            .map(|cpu| cpu.0)
            .collect();
        let running: BTreeSet<u32> = engine.forwarders.iter().map(|one| one.cpu).collect();
        assert_eq!(running, cpus, "threads");
        assert!(engine.ending.is_empty(), "threads that do not end");
        assert!(
            engine.loose.inputs.is_empty() && engine.loose.relays.is_empty(),
            "{:?}",
            engine.loose
        );
        assert!(
            engine.layer3.lock().interface("x").is_some()
                == engine
                    .plan
                    .layer3
                    .interfaces
                    .iter()
                    .any(|one| one.name == "x")
        );
        let has_router = !engine.plan.layer3.interfaces.is_empty();
        let owner_cpus = engine.owner_cpus();
        let (has_names, inspects) = (engine.compares_names(), engine.inspects());
        let workers = self.workers.lock().unwrap();
        let mut served: BTreeMap<(u16, u16), u32> = BTreeMap::new();
        let mut owners: BTreeMap<u16, BTreeSet<u32>> = BTreeMap::new();
        let mut guests: BTreeMap<u16, BTreeSet<u32>> = BTreeMap::new();
        let mut relays: BTreeMap<u16, usize> = BTreeMap::new();
        for cpu in cpus {
            let worker = workers[&cpu].lock().unwrap();
            let worker = worker.as_ref().unwrap();
            for (id, stage) in worker.queues() {
                assert_eq!(served.insert(id, cpu), None, "{id:?} is in two threads");
                let slot = engine.slot(id.0).unwrap();
                assert!(Arc::ptr_eq(stage, &slot.stage), "stage of {id:?}");
                let ports: BTreeSet<u16> = worker.ports().map(|(port, _)| port).collect();
                let reach = engine.reach(id.0);
                assert!(
                    ports.is_superset(&reach),
                    "CPU {cpu} sends to {ports:?}, not {reach:?}"
                );
            }
            assert_eq!(worker.has_name_flows(), has_names, "CPU {cpu}");
            translation::check(engine, worker, cpu);
            assert_eq!(worker.has_inspection(), inspects, "CPU {cpu}");
            let is_tracked = engine.plan.connections.is_some();
            assert_eq!(worker.has_connections(), is_tracked, "CPU {cpu}");
            let has_fragments = worker.has_fragments();
            assert_eq!(has_fragments, engine.orders_fragments(), "CPU {cpu}");
            if !owner_cpus.is_empty() {
                check_share(
                    engine,
                    worker,
                    owner_cpus.iter().position(|one| *one == cpu),
                );
            }
            for (port, is_owner) in worker.ports() {
                let of_port = if is_owner { &mut owners } else { &mut guests };
                of_port.entry(port).or_default().insert(cpu);
            }
            for port in worker.relayed() {
                *relays.entry(port).or_default() += 1;
            }
            match worker.domain() {
                Some(domain) => assert!(has_router && Arc::ptr_eq(domain, &engine.domain)),
                None => assert!(!has_router),
            }
        }
        for (number, slot) in engine.ports() {
            let name = &slot.plan.name;
            assert_eq!(
                slot.queues.len(),
                usize::from(slot.plan.rx_queues),
                "{name}"
            );
            for queue in &slot.queues {
                assert_eq!(
                    queue.cpu,
                    served.remove(&queue.id),
                    "{name}: {:?}",
                    queue.id
                );
            }
            let set = |list: &[u32]| list.iter().copied().collect::<BTreeSet<u32>>();
            assert_eq!(slot.homes.len(), set(&slot.homes).len(), "{name}: {slot:?}");
            assert_eq!(
                slot.guests.len(),
                set(&slot.guests).len(),
                "{name}: {slot:?}"
            );
            let owned = owners.remove(&number).unwrap_or_default();
            assert_eq!(set(&slot.homes), owned, "{name}: transmit queues");
            let sent = guests.remove(&number).unwrap_or_default();
            assert_eq!(set(&slot.guests), sent, "{name}: rings");
            assert_eq!(
                relays.remove(&number).unwrap_or(0),
                sent.len(),
                "{name}: relays"
            );
            let queues = owned.len() + slot.spare_tx.len();
            assert_eq!(queues, usize::from(slot.tx_queues), "{name}: lost queues");
        }
        assert!(served.is_empty() && owners.is_empty() && guests.is_empty());
        for view in &engine.bridges {
            let wanted = entries_of(&engine.statics_of(&view.name));
            assert_eq!(view.statics.entries(), wanted, "{}", view.name);
        }
    }
}

/// Checks that a thread has rings to and from all other owners, and can process what these receive.
fn check_share(engine: &Engine, worker: &Worker, number: Option<usize>) {
    let others = engine.owner_cpus().len() - 1;
    let number = number.and_then(|number| u16::try_from(number).ok());
    let (share_number, senders, receivers) = worker.rings().expect("a part in the sharing");
    assert_eq!((share_number, senders), (number, others));
    // Threads that have ended meanwhile had rings too.
    assert!(
        receivers >= others,
        "{receivers} rings from {others} threads"
    );
    let outputs: BTreeSet<u16> = worker.ports().map(|(port, _)| port).collect();
    for (port, slot) in engine.ports() {
        let stage = worker.stage_for_others(port).expect("a stage");
        assert!(Arc::ptr_eq(stage, &slot.stage), "stage of port {port}");
        let reach = engine.reach(port);
        assert!(outputs.is_superset(&reach), "{outputs:?}, not {reach:?}");
    }
}

/// The configuration, and the prefixes of routes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    config: String,
    routes: BTreeSet<String>,
}

/// Returns a request. Some are refused, depending on those before.
fn request(random: &mut Random) -> Value {
    let mut one_of = |all: &[&'static str]| {
        let index = random.below(all.len() as u64);
        all[usize::try_from(index).unwrap()]
    };
    let port = one_of(&["a", "b", "c", "d", "r", "x", "y"]);
    let bridge = one_of(&["lan", "wan"]);
    let new = one_of(&["x", "y"]);
    let prefix = one_of(&["198.51.100.0/24", "203.0.113.0/24"]);
    let change = match one_of(&[
        "add-port",
        "add-port",
        "del-port",
        "set-port",
        "add-bridge",
        "del-bridge",
        "set-bridge",
        "add-static",
        "add-interface",
        "set-interface",
        "del-interface",
        "add-vrf",
        "add-rule",
        "add-names",
        "inspect",
        "del-rule",
        "set-threads",
        "set-threads",
        "connections",
        "add-route",
        "del-route",
        "move-queue",
        "move-entries",
        "cross-connect",
    ]) {
        "add-port" => json!({"add-port": {"name": new, "uri": "null:", "rx-queues": 2,
            "tx-queues": one_of(&["1", "2"]).parse::<u16>().unwrap(),
            "bridge": (one_of(&["", "lan"]) == "lan").then_some("lan")}}),
        "del-port" => json!({"del-port": {"name": port}}),
        "set-port" => json!({"set-port": {"name": port, "bridging": {"access": 7}}}),
        "add-bridge" => json!({"add-bridge": {"name": "wan", "ports": [new]}}),
        "del-bridge" => json!({"del-bridge": {"name": bridge}}),
        "set-bridge" if one_of(&["add", "del"]) == "add" => {
            json!({"set-bridge": {"name": bridge, "add_ports": [new]}})
        }
        "set-bridge" => {
            json!({"set-bridge": {"name": bridge, "del_ports": [port], "max_entries": 2048}})
        }
        "add-static" => {
            json!({"add-static": {"bridge": bridge, "mac": "02:00:00:00:00:01", "port": port}})
        }
        "add-interface" => {
            json!({"add-interface": {"name": "x", "port": new, "addresses": ["203.0.113.1/28"]}})
        }
        "set-interface" => json!({"set-interface": {"name": "up", "port": "r",
            "addresses": [one_of(&["192.0.2.1/24", "192.0.2.2/24"])]}}),
        "del-interface" => json!({"del-interface": {"name": one_of(&["x", "up"])}}),
        "add-vrf" => json!({"add-vrf": {"name": "red"}}),
        "add-rule" => json!({"add-rule": {"rule": {"name": new, "action": "drop", "port": port}}}),
        "add-names" => json!({"add-rule": {"rule": {"name": "x", "action": "drop", "port": port,
            "protocol": "tcp", "destination-port": "443", "tls-name": ["www.example.org"]}}}),
        "inspect" => json!({"add-rule": {"rule": {"name": "x", "action": "accept",
            "inspect": new}}}),
        "del-rule" => json!({"del-rule": {"name": one_of(&["no-a", "x"])}}),
        "set-threads" => {
            json!({"set-threads": {"forwarding_cpus": one_of(&["2", "2-3", "2-4", "3-5", "5"])}})
        }
        "connections" => match one_of(&["set", "timeouts", "size", "del"]) {
            "set" => json!({"set-connections": {"max-entries": 64}}),
            "timeouts" => json!({"set-connections": {"max-entries": 64, "max-half-open": 9,
                "new-share": 30, "timeouts": {"udp-replied": 9}}}),
            "size" => json!({"set-connections": {"max-entries": 32}}),
            _ => json!("del-connections"),
        },
        "add-route" => {
            return json!({"add-routes": [{"prefix": prefix, "via": [{"address": "192.0.2.9"}]}]});
        }
        "del-route" => return json!({"del-routes": {"vrf": null, "prefixes": [prefix]}}),
        "move-queue" => {
            let cpu: u32 = one_of(&["2", "3", "4"]).parse().unwrap();
            return json!({"move-queue": {"port": port, "queue": 0, "cpu": cpu}});
        }
        "move-entries" => {
            return json!({"move-entries": {"port": port, "queue": 0, "to_queue": 1, "entries": 9}});
        }
        _ if one_of(&["add", "del"]) == "add" => {
            json!({"add-cross-connect": {"ports": [new, port]}})
        }
        _ => json!({"del-cross-connect": {"port": port}}),
    };
    json!({"change": change})
}

/// Returns the state after a request that is carried out.
fn after(rig: &Rig, before: &State, request: &Value) -> Option<State> {
    let mut after = before.clone();
    if let Some(change) = request.get("change") {
        let change = read(change);
        let settings = rig.controller.settings().clone().after(change).ok()?;
        after.config = settings.plan(&online()).ok()?.to_toml().unwrap();
    } else if let Some(routes) = request.get("add-routes") {
        after
            .routes
            .insert(routes[0]["prefix"].as_str()?.to_owned());
    } else if let Some(routes) = request.get("del-routes") {
        after.routes.remove(routes["prefixes"][0].as_str()?);
    }
    Some(after)
}

#[derive(Debug, Default)]
struct Ends {
    done: u64,
    refused: u64,
    failed: u64,
    stopped: u64,
}

/// Makes random requests.
type Requests = fn(&mut Random) -> Value;

fn run((start, requests): (&str, Requests), seed: u64, ends: &mut Ends, trail: &mut Vec<String>) {
    let mut random = Random::new(seed);
    trail.clear();
    let mut rig = Rig::with(start);
    rig.check();
    for _ in 0..=random.below(4) {
        let request = requests(&mut random);
        trail.push(request.to_string());
        let before = rig.state();
        let wanted = after(&rig, &before, &request);
        let when = match random.below(6) {
            0 => When::Never,
            1 | 2 => When::Once(random.below(60)),
            3 => When::From(random.below(60)),
            4 => When::OneIn(4),
            _ => When::OneIn(30),
        };
        let own = Random::new(random.below(u64::MAX));
        let may_end = random.below(8) == 0;
        let answer = rig.ask(&request, when, own, may_end);
        trail.push(format!("{when:?}: {:?}", rig.faults.script().happened));
        trail.push(format!("{answer:?}"));
        match &answer {
            Answer::Ok { .. } => {
                ends.done += 1;
                let mut wanted = wanted.expect("carried out");
                let now = rig.state();
                // Routes through an interface or into a VRF are removed with it.
                if request.get("change").is_some() {
                    assert!(now.routes.is_subset(&wanted.routes), "{now:?}");
                    wanted.routes.clone_from(&now.routes);
                }
                assert_eq!(now, wanted);
            }
            Answer::Error { message, fault } => {
                assert!(!message.is_empty());
                let is_valid = *fault != Fault::BadInput;
                ends.failed += u64::from(is_valid);
                ends.refused += u64::from(!is_valid);
                assert_eq!(rig.state(), before);
            }
        }
        if rig.has_ended_thread() {
            // It is logged with its name, and the switch stops.
            assert!(!rig.controller.run_periodic_work());
            ends.stopped += 1;
            return;
        }
        let now = rig.state();
        rig.settle();
        assert_eq!(rig.state(), now);
        rig.check();
        assert!(rig.controller.run_periodic_work());
    }
}

/// One switch at a time: pools of buffers have names.
static ONE: Mutex<()> = Mutex::new(());

/// Runs seeds, as [`run_seeds`] does. Returns their number and ends.
fn run_all(of_tests: u64, test: &str, what: (&str, Requests)) -> (u64, Ends) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut ends, mut trail) = (Ends::default(), Vec::new());
    let seeds = run_seeds(of_tests, "quietwire-switch", test, |seed| {
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(what, seed, &mut ends, &mut trail);
        }));
        if let Err(panic) = judged {
            eprintln!("{trail:#?}");
            std::panic::resume_unwind(panic);
        }
    });
    println!("{seeds} seeds: {ends:?}");
    (seeds, ends)
}

#[test]
fn after_any_fault_a_change_is_complete_or_undone_or_the_switch_stops() {
    let test = "after_any_fault_a_change_is_complete";
    let (seeds, ends) = run_all(SEEDS, test, (START, request));
    if seeds >= MANY {
        let Ends {
            done,
            refused,
            failed,
            stopped,
        } = ends;
        assert!(done.min(refused).min(failed) > seeds / 10, "{ends:?}");
        assert!(stopped > seeds / 100, "{ends:?}");
    }
}

#[test]
fn threads_share_connections_after_any_fault() {
    let test = "threads_share_connections_after_any_fault";
    run_all(FEW_SEEDS, test, (&start_shared(), request));
}

impl Rig {
    /// Returns the states of ports in reports, by name.
    fn port_states(&mut self) -> BTreeMap<String, String> {
        let reports = self.controller.engine().port_reports().into_iter();
        reports.map(|one| (one.counts.name, one.state)).collect()
    }

    /// Sends a change, which succeeds.
    fn change(&mut self, change: &Value) {
        let request = read(&json!({ "change": change }));
        let answer = self.controller.answer(request);
        assert!(matches!(answer, Answer::Ok { .. }), "{change}: {answer:?}");
    }
}

#[test]
fn a_removed_device_costs_its_own_port_alone_whatever_fails_meanwhile() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for seed in 0..20 {
        let mut rig = Rig::new();
        let before = rig.port_states();
        *rig.faults.script() = Script {
            // Without faults first.
            when: if seed == 0 {
                When::Never
            } else {
                When::OneIn(4)
            },
            random: Random::new(seed),
            count: 0,
            may_end: false,
            happened: Vec::new(),
        };
        let engine = rig.controller.engine();
        let numbers = ["a", "c"].map(|name| engine.number(name).unwrap());
        engine.retire(&numbers);
        rig.faults.script().when = When::Never;
        rig.settle();
        let engine = rig.controller.engine();
        let open: Vec<&str> = engine.ports().map(|(_, slot)| &*slot.plan.name).collect();
        assert_eq!(open, ["b", "d", "r"], "seed {seed}");
        // Frames of the other end of the cross-connect are dropped, and those of the bridge have no other port.
        for (name, others) in [("b", 0), ("d", 0)] {
            let number = engine.number(name).unwrap();
            assert_eq!(engine.reach(number).len(), others, "seed {seed}: {name}");
        }
        let states = rig.port_states();
        for (name, state) in &before {
            let expected = if ["a", "c"].contains(&name.as_str()) {
                "removed"
            } else {
                state.as_str()
            };
            assert_eq!(states[name], expected, "seed {seed}: {name}");
        }
        // It stays in the configuration and is not opened by other changes.
        let config = rig.state().config;
        assert!(config.contains("name = \"a\""), "{config}");
        rig.change(&json!({"add-port": {"name": "x", "uri": "null:"}}));
        assert_eq!(rig.port_states()["a"], "removed");
        assert!(rig.controller.engine().number("a").is_none());
        // Deleted and added, it is opened.
        rig.change(&json!({"del-port": {"name": "c"}}));
        assert!(!rig.port_states().contains_key("c"));
        rig.change(&json!({"add-port": {"name": "c", "uri": "null:"}}));
        assert_eq!(rig.port_states()["c"], before["c"]);
    }
}
