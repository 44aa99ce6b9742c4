// SPDX-License-Identifier: Apache-2.0
//! Load balancers: tables of forwarding threads, and reports.

use std::net::SocketAddr;

use quietwire_tables::balance::{
    BackendSet, BackendUse, BalanceDrop, BalanceEndpoint, BalanceError, BalanceSettings, Balancer,
    Balancers,
};

use super::Engine;
use super::apply::Tally;
use super::maker::step;
use super::orders::unexpected_reply;
use super::threads::Forwarder;
use crate::config::balance::{BACKENDS_MAX, LoadBalancerSetting};
use crate::config::layer3::VRF_MAIN;
use crate::error::SwitchError;
use crate::forward::{BalanceQuery, BalanceStage, BalancerTotals, Reply, WorkerCommand};
use crate::report::{BackendReport, LoadBalancerReport};

fn wrong(what: impl Into<String>) -> SwitchError {
    SwitchError::Config {
        location: "load-balancer".to_owned(),
        what: what.into(),
    }
}

/// Creates the table of a load balancer, or one without space if the thread has its table (`is_known`).
fn balancer<E: BalanceEndpoint>(
    setting: &LoadBalancerSetting,
    table: &BalanceSettings<E>,
    (is_known, notes_changes): (bool, bool),
) -> Result<Balancer<E>, BalanceError> {
    let backends = setting.backends();
    let backends: Vec<_> = backends.iter().filter_map(|one| one.of_version()).collect();
    let set = BackendSet::new(&backends);
    if is_known {
        return Balancer::without_space(table, set);
    }
    let mut balancer = Balancer::new(table, set)?;
    if notes_changes {
        balancer.allow_changes();
    }
    Ok(balancer)
}

impl Engine {
    /// Gives all threads the load balancers of the plan. Established connections stay with their backends.
    pub(super) fn show_balancers(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        for cpu in self.cpus() {
            // A thread that is about to end keeps its tables.
            let Some(share) = self.share_of_thread(cpu) else {
                continue;
            };
            let wanted = self.plan.load_balancers.iter();
            let wanted: Vec<_> = wanted.map(|one| one.with_share(share)).collect();
            let mut forwarders = self.forwarders.iter();
            let known = forwarders.find(|one| one.cpu == cpu);
            let known = known.map(|one| one.balancers.clone()).unwrap_or_default();
            if known != wanted {
                tally.note(self.order_balancers(cpu, &known, &wanted))?;
            }
        }
        Ok(())
    }

    fn order_balancers(
        &mut self,
        cpu: u32,
        known: &[LoadBalancerSetting],
        wanted: &[LoadBalancerSetting],
    ) -> Result<(), SwitchError> {
        let vrf = self.layer3.lock().vrf(VRF_MAIN);
        let vrf =
            vrf.ok_or_else(|| wrong("the main VRF is missing (this is a bug in the switch)"))?;
        let stage = BalanceStage {
            balancers: self.new_balancers(known, wanted)?,
            balancers_ipv6: self.new_balancers(known, wanted)?,
            vrf,
        };
        let stage = (!wanted.is_empty()).then(|| Box::new(stage));
        let record = |forwarder: &mut Forwarder| forwarder.balancers = wanted.to_vec();
        // The former tables are freed here.
        self.send_and_record(cpu, WorkerCommand::Balance(stage), record)
            .map(drop)
    }

    /// Creates the tables of load balancers of an IP version.
    fn new_balancers<E: BalanceEndpoint>(
        &self,
        known: &[LoadBalancerSetting],
        wanted: &[LoadBalancerSetting],
    ) -> Result<Balancers<E>, SwitchError> {
        let known: Vec<_> = known.iter().map(LoadBalancerSetting::table).collect();
        let notes_changes = self.plan.replication().is_some();
        let maker = self.maker.clone();
        let mut balancers = Vec::new();
        for setting in wanted {
            let Some(table) = setting.table().of_version() else {
                continue;
            };
            let is_known = known.contains(&setting.table());
            let made = step(&*maker, "table of a load balancer", || {
                balancer(setting, &table, (is_known, notes_changes))
                    .map_err(|error| wrong(error.to_string()))
            })?;
            balancers.push(made);
        }
        Ok(Balancers::new(balancers))
    }

    /// Returns the reports of all load balancers.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] if the thread does not reply.
    pub(crate) fn load_balancer_reports(&mut self) -> Result<Vec<LoadBalancerReport>, SwitchError> {
        let settings = self.plan.load_balancers.clone();
        if settings.is_empty() {
            return Ok(Vec::new());
        }
        let mut sums: Vec<BalancerTotals> = Vec::new();
        for cpu in self.cpus() {
            let each = self.balancer_totals(cpu, settings.len())?;
            for (sum, one) in sums.iter_mut().zip(&each) {
                sum.add(one);
            }
            if sums.is_empty() {
                sums = each;
            }
        }
        // Threads have those of IPv4 first.
        let ipv4_count = settings.iter().filter(|one| one.address.is_ipv4()).count();
        let (of_ipv4, of_ipv6) = sums.split_at_checked(ipv4_count).unwrap_or_default();
        let (mut of_ipv4, mut of_ipv6) = (of_ipv4.iter(), of_ipv6.iter());
        let report = |setting: &LoadBalancerSetting| {
            let totals = match setting.address.is_ipv4() {
                true => of_ipv4.next(),
                false => of_ipv6.next(),
            };
            totals.map(|totals| report_of(setting, totals))
        };
        Ok(settings.iter().filter_map(report).collect())
    }

    /// Returns the numbers of all load balancers on a thread.
    fn balancer_totals(
        &mut self,
        cpu: u32,
        count: usize,
    ) -> Result<Vec<BalancerTotals>, SwitchError> {
        let totals = || BalancerTotals {
            backends: Vec::with_capacity(BACKENDS_MAX),
            ..BalancerTotals::default()
        };
        let query = Box::new(BalanceQuery {
            balancers: std::iter::repeat_with(totals).take(count).collect(),
            ..BalanceQuery::default()
        });
        match self.send_command(cpu, WorkerCommand::BalanceQuery(query))? {
            Reply::BalanceQuery(query) => Ok(query.balancers),
            _ => Err(unexpected_reply("load-balancer")),
        }
    }
}

fn report_of(setting: &LoadBalancerSetting, totals: &BalancerTotals) -> LoadBalancerReport {
    let counters = &totals.counters;
    let reasons = BalanceDrop::ALL.into_iter().zip(counters.dropped);
    let backend = |one: &BackendUse<SocketAddr>| BackendReport {
        endpoint: one.backend.endpoint,
        weight: one.backend.weight,
        state: one.backend.state.name().to_owned(),
        connections: one.connections,
        packets_in: one.packets_in,
        packets_out: one.packets_out,
    };
    LoadBalancerReport {
        name: setting.name.clone(),
        protocol: setting.protocol.to_string(),
        endpoint: setting.table().endpoint,
        connections: totals.connections,
        max_connections: u64::from(setting.table().connections_max),
        created: counters.created,
        moved: counters.moved,
        replaced: counters.replaced,
        dropped: reasons
            .map(|(reason, count)| (reason.name().to_owned(), count))
            .collect(),
        backends: totals.backends.iter().map(backend).collect(),
    }
}
