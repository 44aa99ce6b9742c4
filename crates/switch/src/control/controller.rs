// SPDX-License-Identifier: Apache-2.0
//! Request handling and periodic tasks of the control thread.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quietwire_base::Fault;
use quietwire_host::CpuList;
use quietwire_host::threads::{ReadError, online_cpus};
use serde::Serialize;
use serde_json::Value;

use super::confirm::{CONFIRM_MAX_S, FormerRules, Unconfirmed, is_of_rules};
use super::sets;
use super::staged::StagedRules;
use super::timeouts::Timeouts;
use super::{Answer, Request, Subject};
use crate::config::rules::SetName;
use crate::config::{Change, Plan, Seccomp, Settings};
use crate::denied_calls::{self, DeniedCalls};
use crate::engine::{Engine, Part};
use crate::error::SwitchError;
use crate::layer3::{Layer3, RouteQuery};
use crate::replication::Replication;
use crate::report::{ReplicationReport, RulesReport};
use crate::rights::Rights;
use crate::service::Housekeeping;
use crate::threads;

/// Maximum wait for clients before the periodic tasks run.
const WAIT_MS: u16 = 100;
/// Interval between checks of the CPU affinity of all threads.
const VERIFY: Duration = Duration::from_secs(5);
/// Interval between checks of the timeouts of elements of sets.
const TIMEOUTS: Duration = Duration::from_secs(1);
/// Interval between readings of the links of network cards.
const LINKS: Duration = Duration::from_secs(1);
/// Interval between load samples of receive queues.
const LOADS: Duration = Duration::from_secs(2);

/// Access of the controller to the machine. Tests replace it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// Returns the CPUs that are online.
    pub(crate) online: fn() -> Result<CpuList, ReadError>,
    /// Moves threads to the CPUs of their roles.
    pub(crate) keep_to_roles: fn(&Plan) -> Result<(), SwitchError>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            online: || online_cpus(Path::new("/")),
            keep_to_roles: threads::keep_to_roles,
        }
    }
}

/// The engine, its configuration, and the due times of periodic tasks.
#[derive(Debug)]
pub(crate) struct Controller {
    machine: Machine,
    settings: Settings,
    /// Rights since the start of the switch.
    rights: Rights,
    engine: Engine,
    /// Replication of connections, if it is configured.
    replication: Option<Replication>,
    housekeeping: Housekeeping,
    verified: Instant,
    loads_observed: Instant,
    links_observed: Instant,
    denied_calls: DeniedCalls,
    /// Rules and sets for a later change.
    staged: StagedRules,
    /// Rules that wait for a confirmation.
    unconfirmed: Option<Unconfirmed>,
    timeouts: Timeouts,
    timeouts_observed: Instant,
}

impl Controller {
    pub(crate) fn new(settings: Settings, engine: Engine, housekeeping: Housekeeping) -> Self {
        let plan = &engine.plan;
        let rights = Rights::of(plan);
        // Settings that the switch chose at start-up are fixed from here on.
        let settings = Settings {
            forwarding_cpus: Some(plan.forwarding_cpus.clone()),
            service_cpus: Some(plan.service_cpus.clone()),
            control_cpus: Some(plan.control_cpus.clone()),
            ..settings
        };
        let mut controller = Self {
            machine: Machine::default(),
            settings,
            rights,
            engine,
            replication: None,
            housekeeping,
            verified: Instant::now(),
            loads_observed: Instant::now(),
            links_observed: Instant::now(),
            denied_calls: DeniedCalls::new(Instant::now()),
            staged: StagedRules::default(),
            unconfirmed: None,
            timeouts: Timeouts::default(),
            timeouts_observed: Instant::now(),
        };
        controller.follow_timeouts();
        controller
    }

    /// Returns the use of seccomp filters.
    pub(crate) fn seccomp(&self) -> Seccomp {
        self.engine.plan.seccomp
    }

    /// Replicates connections from now on.
    pub(crate) fn set_replication(&mut self, replication: Option<Replication>) {
        self.replication = replication;
    }

    pub(crate) fn wait_ms(&self) -> u16 {
        let wait_ms = self.replication.as_ref().and_then(Replication::wait_ms);
        wait_ms.map_or(WAIT_MS, |wait_ms| wait_ms.min(WAIT_MS))
    }

    /// Returns the CPU and the number of turns of each forwarding thread.
    pub(crate) fn turns(&self) -> impl Iterator<Item = (u32, u64)> {
        let forwarders = self.engine.forwarders.iter();
        forwarders.map(|one| (one.cpu, one.counters.turns.get()))
    }

    /// Describes the switch in one line.
    pub(crate) fn status(&self) -> String {
        self.engine.plan.summary()
    }

    /// Runs the periodic tasks that are due. Returns false if a forwarding thread has ended unexpectedly.
    pub(crate) fn run_periodic_work(&mut self) -> bool {
        if self.verified.elapsed() >= VERIFY {
            self.verified = Instant::now();
            if let Err(error) = (self.machine.keep_to_roles)(&self.engine.plan) {
                tracing::warn!("{error}");
            }
        }
        if self.loads_observed.elapsed() >= LOADS {
            self.loads_observed = Instant::now();
            self.engine.sample_loads();
            // The code that notices the first missing reply of a thread logs it.
            match self.engine.reclaim() {
                Ok(()) => self.rebalance(),
                Err(error) => tracing::debug!("{error}"),
            }
        }
        if self.links_observed.elapsed() >= LINKS {
            self.links_observed = Instant::now();
            self.engine.watch_links();
            self.engine.report_resets();
            self.engine.offload_rules();
        }
        self.return_rules();
        self.end_elements();
        self.denied_calls.log(Instant::now());
        self.engine.write_nat_log();
        if let Some(replication) = &mut self.replication {
            replication.turn(&mut self.engine, Instant::now());
        }
        self.engine.end_idle_watches();
        self.engine.turn_kernel_forwarding();
        self.engine.retire_removed();
        self.engine.settle_periodically();
        match self.engine.forwarders.iter().find(|one| one.has_ended()) {
            Some(ended) if !self.engine.shared.is_ending() => {
                tracing::error!(
                    "thread {} has ended unexpectedly",
                    threads::forwarding_name(ended.cpu)
                );
                false
            }
            _ => true,
        }
    }

    fn rebalance(&mut self) {
        if let Some(rules) = self.engine.plan.rebalance
            && let Err(error) = self.engine.rebalance(&rules, false)
        {
            tracing::warn!("{error}");
        }
    }

    /// Ends the forwarding threads and closes the ports, once the stop flag is set. Returns the names of threads that do not end.
    pub(crate) fn end(mut self) -> Vec<String> {
        let left = self.engine.end_forwarding();
        self.engine.end_nat_log();
        self.denied_calls.log_all();
        left
    }

    pub(crate) fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Show(subject) => self.show(subject),
            Request::Version => to_answer(&env!("CARGO_PKG_VERSION")),
            Request::Objects => to_answer(&self.engine.objects_report()),
            Request::PortGroup { port } => to_answer(&self.engine.group_of_port(&port)),
            Request::Change(change) if is_of_rules(&change) && self.unconfirmed.is_some() => {
                self.awaits_confirmation()
            }
            Request::Change(change) => changed(self.change(*change)),
            Request::StageRules { at, rules } => staged(self.staged.stage_rules(at, rules)),
            Request::ReplaceRules {
                staged,
                default,
                malformed,
                confirm_s,
            } => {
                let change = Change::SetRules {
                    rules: None,
                    sets: None,
                    staged: Some(staged),
                    default,
                    malformed,
                };
                self.change_until_confirmed(change, confirm_s)
            }
            Request::ChangeRules { change, .. } if !is_of_rules(&change) => Answer::error(
                Fault::BadInput,
                "only changes of rules and sets wait for a confirmation (make this change without one)",
            ),
            Request::ChangeRules { change, confirm_s } => {
                self.change_until_confirmed(*change, confirm_s)
            }
            Request::ConfirmRules => self.confirm_rules(),
            Request::CheckRules(received) => result(self.engine.check_rules(&received)),
            Request::ShowRules { from, limit } => to_answer(&self.rules_report(from, limit)),
            Request::ShowSets { set, from, limit } => self.show_sets(set, (from, limit)),
            Request::StageSets { at, sets } => staged(self.staged.stage_sets(at, sets)),
            Request::Rebalance { dry_run, rules } => {
                let rules = rules.or(self.engine.plan.rebalance).unwrap_or_default();
                result(self.engine.rebalance(&rules, dry_run))
            }
            Request::FlushFdb { bridge, port, vlan } => {
                result(self.engine.flush_fdb(&bridge, port.as_deref(), vlan))
            }
            Request::AddRoutes(routes) => {
                let result_of = self.engine.layer3.lock().add_routes(&routes);
                result(self.with_space(result_of, |layer3| layer3.add_routes(&routes)))
            }
            Request::DelRoutes { vrf, prefixes } => {
                let mut layer3 = self.engine.layer3.lock();
                result(layer3.del_routes(vrf.as_deref(), &prefixes))
            }
            Request::ShowRoutes {
                vrf,
                prefix,
                limit,
                after,
            } => result(self.engine.layer3.routes(RouteQuery {
                vrf: vrf.as_deref(),
                prefix,
                after,
                limit,
            })),
            Request::ShowConnections {
                selection,
                limit,
                from,
            } => result(self.engine.connections(&selection, limit, from)),
            Request::ShowMappings { nat, limit, from } => {
                result(self.engine.mappings(&nat, limit, from))
            }
            Request::FlushMappings(selection) => result(self.engine.flush_mappings(&selection)),
            Request::FlushConnections(selection) => {
                result(self.engine.flush_connections(&selection))
            }
            Request::SaveConnections { from } => result(self.engine.save_connections(from)),
            Request::RestoreConnections { version, records } => {
                result(self.engine.restore_connections(version, &records))
            }
            Request::SaveMappings { position } => result(self.engine.save_mappings(position)),
            Request::RestoreMappings { messages } => {
                result(self.engine.restore_mappings(&messages))
            }
            Request::TakeOver => result(self.take_over()),
            Request::AddNeighbour(setting) => {
                result(self.engine.layer3.lock().add_neighbour(&setting))
            }
            Request::DelNeighbour { interface, address } => {
                let mut layer3 = self.engine.layer3.lock();
                result(layer3.del_neighbour(&interface, address))
            }
            Request::Watch(request) => result(self.engine.watch(request)),
            Request::MoveQueue { port, queue, cpu } => {
                result(self.engine.move_by_hand(&port, queue, cpu))
            }
            Request::MoveEntries {
                port,
                queue,
                to_queue,
                entries,
            } => {
                let part = Part { to_queue, entries };
                result(self.engine.move_entries_by_hand(&port, queue, part))
            }
        }
    }

    /// Runs an operation, and runs it again after a failure once memory that forwarding threads no longer use is reclaimed.
    fn with_space<T>(
        &mut self,
        first: Result<T, SwitchError>,
        again: impl FnOnce(&mut Layer3) -> Result<T, SwitchError>,
    ) -> Result<T, SwitchError> {
        match first {
            Ok(done) => Ok(done),
            Err(_) => {
                self.engine.reclaim()?;
                again(&mut self.engine.layer3.lock())
            }
        }
    }

    /// Sets the routes and neighbours of the configuration. Their interfaces must exist.
    ///
    /// # Errors
    /// The first invalid route or neighbour and its source location.
    pub(crate) fn load(&mut self) -> Result<(), SwitchError> {
        let mut layer3 = self.engine.layer3.lock();
        for route in self.settings.routes.take().into_iter().flatten() {
            layer3
                .add_routes(std::slice::from_ref(&route.value))
                .map_err(|error| route.location.wrong(error.to_string()))?;
        }
        for neighbour in self.settings.neighbours.take().into_iter().flatten() {
            layer3
                .add_neighbour(&neighbour.value)
                .map_err(|error| neighbour.location.wrong(error.to_string()))?;
        }
        Ok(())
    }

    /// Returns all counters in Prometheus' text format.
    pub(crate) fn metrics(&mut self) -> String {
        let stats = self.engine.stats_report();
        let ports = self.engine.port_reports();
        let queues = self.engine.queue_reports();
        let steered = self.engine.steer_reports();
        // A thread that does not reply is reported elsewhere.
        let connections = self.engine.connections_summary().unwrap_or_default();
        let nats = self.engine.nat_reports().unwrap_or_default();
        let balancers = self.engine.load_balancer_reports().unwrap_or_default();
        let replication = self.replication.as_ref().map(Replication::report);
        let reports = crate::metrics::EngineReports {
            stats: &stats,
            ports: &ports,
            queues: &queues,
            steered: &steered,
            connections: connections.as_ref(),
            nats: &nats,
            balancers: &balancers,
            replication: replication.as_ref(),
        };
        crate::metrics::exposition(&reports, &denied_calls::by_role())
    }

    fn show(&mut self, subject: Subject) -> Answer {
        let engine = &mut self.engine;
        match subject {
            Subject::Ports => to_answer(&engine.port_reports()),
            Subject::Fdb => to_answer(&engine.fdb_reports()),
            Subject::Threads => result(engine.thread_reports().map_err(SwitchError::from)),
            Subject::Stats => to_answer(&engine.stats_report()),
            Subject::Queues => to_answer(&engine.queue_reports()),
            Subject::Cycles => to_answer(&engine.cycles_report()),
            Subject::Moves => to_answer(&engine.move_reports()),
            Subject::Vlans => to_answer(&engine.vlan_reports()),
            Subject::Flapping => to_answer(&engine.flapping_reports()),
            Subject::Vrfs => to_answer(&engine.vrf_reports()),
            Subject::Interfaces => to_answer(&engine.interface_reports()),
            Subject::Neighbours => to_answer(&engine.layer3.lock().neighbour_reports()),
            Subject::KernelFilters => to_answer(&engine.kernel_filter_reports()),
            Subject::Steer => to_answer(&engine.steer_reports()),
            Subject::Nat => result(engine.nat_reports()),
            Subject::LoadBalancers => result(engine.load_balancer_reports()),
            Subject::Replication => result(self.replication_report()),
            Subject::Rules => to_answer(&self.rules_report(0, usize::MAX)),
            Subject::Config => match engine.config_text() {
                Ok(text) => to_answer(&text),
                Err(error) => Answer::error(Fault::Failed, error.to_string()),
            },
        }
    }

    fn replication_report(&self) -> Result<ReplicationReport, SwitchError> {
        let replication = self.replication.as_ref();
        let report = replication.map(Replication::report);
        report.ok_or_else(no_replication)
    }

    /// Makes a standby the active switch. Returns the state of its replication.
    fn take_over(&mut self) -> Result<ReplicationReport, SwitchError> {
        let replication = self.replication.as_mut().ok_or_else(no_replication)?;
        replication.take_over()?;
        Ok(replication.report())
    }

    /// Returns a page of rules.
    fn rules_report(&self, from: usize, limit: usize) -> RulesReport {
        let unconfirmed = self.unconfirmed.as_ref();
        RulesReport {
            unconfirmed_s: unconfirmed.map(|one| one.left_s(Instant::now())),
            ..self.engine.rules_report(from, limit)
        }
    }

    fn awaits_confirmation(&self) -> Answer {
        let left = self.unconfirmed.as_ref();
        let left_s = left.map_or(0, |one| one.left_s(Instant::now()));
        let what = format!(
            "new rules wait for a confirmation (run `switch rules confirm`, or wait {left_s} s until the former rules return)"
        );
        Answer::error(Fault::Failed, what)
    }

    /// Keeps the rules that wait for a confirmation.
    fn confirm_rules(&mut self) -> Answer {
        match self.unconfirmed.take() {
            Some(_) => Answer::ok(Value::Null),
            None => Answer::error(
                Fault::Failed,
                "no rules wait for a confirmation (the former rules may have returned: see `switch show rules`)",
            ),
        }
    }

    /// Reports a page of all sets, or of the elements of one.
    fn show_sets(&self, set: Option<SetName>, page: (usize, usize)) -> Answer {
        let rules = &self.engine.plan.rules;
        let all = (&rules.sets[..], &rules.rules[..]);
        match sets::report(all, &self.timeouts, set.as_ref(), page) {
            Some(report) => to_answer(&report),
            None => {
                let name = set.map_or_else(String::new, String::from);
                Answer::error(Fault::BadInput, format!("no such set: '{name}'"))
            }
        }
    }

    /// Changes rules or sets, and returns to the former ones later if the change is not confirmed. A change that waits excludes another one.
    fn change_until_confirmed(&mut self, change: Change, confirm_s: u32) -> Answer {
        if self.unconfirmed.is_some() {
            return self.awaits_confirmation();
        }
        if !(1..=CONFIRM_MAX_S).contains(&confirm_s) {
            let what = format!(
                "the time for the confirmation is {confirm_s} s (use 1 to {CONFIRM_MAX_S} s)"
            );
            return Answer::error(Fault::BadInput, what);
        }
        let former = FormerRules::of(&self.settings, &self.timeouts);
        let result = self.change(change);
        if result.is_ok() {
            self.unconfirmed = Some(Unconfirmed::new(former, confirm_s, Instant::now()));
        }
        changed(result)
    }

    /// Returns to the former rules if the new ones were not confirmed in time.
    fn return_rules(&mut self) {
        let now = Instant::now();
        let Some(unconfirmed) = self.unconfirmed.as_ref().filter(|one| one.is_due(now)) else {
            return;
        };
        let settings = unconfirmed.former().put_into(self.settings.clone(), now);
        match settings.and_then(|settings| self.change_to(settings)) {
            Ok(_) => {
                // Elements keep the times of their addition, even in sets that the new rules lacked.
                if let Some(unconfirmed) = self.unconfirmed.take() {
                    self.timeouts = unconfirmed.into_timeouts();
                    self.follow_timeouts();
                }
                tracing::warn!(
                    "the new rules were not confirmed in time: the former rules are in force again"
                );
            }
            Err(error) => {
                tracing::error!(
                    "cannot return to the former rules: {error} (the switch tries again)"
                );
                if let Some(unconfirmed) = &mut self.unconfirmed {
                    unconfirmed.try_again(Instant::now());
                }
            }
        }
    }

    fn follow_timeouts(&mut self) {
        let sets = &self.engine.plan.rules.sets;
        self.timeouts.follow(sets, Instant::now());
    }

    /// Removes the elements of sets whose time is over.
    fn end_elements(&mut self) {
        if self.timeouts_observed.elapsed() < TIMEOUTS {
            return;
        }
        self.timeouts_observed = Instant::now();
        let sets = &self.engine.plan.rules.sets;
        for (set, elements) in self.timeouts.due(sets, Instant::now()) {
            let count = elements.len();
            let name = set.clone();
            match self.change(Change::DelElements { set, elements }) {
                Ok(_) => tracing::debug!("set '{name}': {count} elements timed out"),
                // They are due at the next check, too.
                Err(error) => tracing::warn!("set '{name}': cannot remove elements: {error}"),
            }
        }
    }

    /// Applies a change completely or not at all. Returns a warning if the change is in force and threads are not on the CPUs of their
    /// roles, which [`Self::run_periodic_work`] tries again.
    fn change(&mut self, change: Change) -> Result<Option<String>, SwitchError> {
        let change = self.staged.put_into(change);
        let settings = self.settings.clone().after(change)?;
        self.change_to(settings)
    }

    /// Puts settings in force, as [`Self::change`] does.
    fn change_to(&mut self, settings: Settings) -> Result<Option<String>, SwitchError> {
        let former = (&self.settings, &self.engine.plan);
        let online = (self.machine.online)()?;
        let plan = settings.clone().plan_after(&online, Some(former))?;
        self.rights.check(&self.engine.plan, &plan)?;
        let rules = Arc::clone(&self.engine.plan.rules);
        self.engine.apply(plan)?;
        self.settings = settings;
        if !Arc::ptr_eq(&rules, &self.engine.plan.rules) {
            self.follow_timeouts();
        }
        self.housekeeping.set(&self.engine.bridges);
        let kept = (self.machine.keep_to_roles)(&self.engine.plan);
        Ok(kept.err().map(|error| {
            let text = format!(
                "the change is in force, but {error} (the switch tries again every {} s)",
                VERIFY.as_secs()
            );
            tracing::warn!("{text}");
            text
        }))
    }
}

#[cfg(test)]
impl Controller {
    /// Replaces the machine.
    pub(crate) fn on(self, machine: Machine) -> Self {
        Self { machine, ..self }
    }

    /// Ends the time for a confirmation, so that the next periodic work returns to the former rules.
    pub(crate) fn end_confirmation_time(&mut self) {
        if let Some(unconfirmed) = &mut self.unconfirmed {
            unconfirmed.end(Instant::now());
        }
    }

    pub(crate) fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }
}

fn no_replication() -> SwitchError {
    SwitchError::Config {
        location: "connections".to_owned(),
        what: "replication is not configured (add a section [connections.replication], or [replication] without connection tracking)"
            .to_owned(),
    }
}

/// Returns the answer to a change, which may have a warning.
fn changed(result: Result<Option<String>, SwitchError>) -> Answer {
    match result {
        Ok(warning) => Answer::Ok {
            result: Value::Null,
            warning,
        },
        Err(error) => Answer::error(error.fault(), error.to_string()),
    }
}

/// Returns the answer to a request that stages rules or sets.
fn staged(result: Result<(), String>) -> Answer {
    match result {
        Ok(()) => Answer::ok(Value::Null),
        Err(what) => Answer::error(Fault::BadInput, what),
    }
}

fn result<T: Serialize>(result: Result<T, SwitchError>) -> Answer {
    match result {
        Ok(report) => to_answer(&report),
        Err(error) => Answer::error(error.fault(), error.to_string()),
    }
}

fn to_answer(report: &impl Serialize) -> Answer {
    match serde_json::to_value(report) {
        Ok(result) => Answer::ok(result),
        Err(error) => {
            let what = format!("cannot serialise the reply: {error}");
            Answer::error(Fault::Failed, what)
        }
    }
}
