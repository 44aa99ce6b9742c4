// SPDX-License-Identifier: Apache-2.0
//! A partition plan beside kubelet. The plan gives CPUs to the data plane, guests and neighbours only if kubelet keeps all containers off
//! them. Otherwise it names the settings of kubelet to change, or the container that has the CPUs. Nothing is changed here.
//!
//! Containers run on CPUs of the host: applying a plan keeps all other CPUs out of kubelet's control group.

mod request;
#[cfg(test)]
mod tests;

use std::fmt;

use quietwire_host::inventory::Inventory;
use quietwire_host::partition::{PartitionRequest, Plan, Role, plan};
use quietwire_host::{CpuId, CpuList};

use crate::kubelet::{Kubelet, STATIC, STATIC_MEMORY, STRICT};

/// CPUs that the plan and a container both have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The CPUs.
    pub cpus: CpuList,
    /// Owner in the plan: `group 'forwarding' of NodePartition 'edge'`.
    pub ours: String,
    /// Owner in kubelet: `container 'app' of pod 'default/fast'`.
    pub theirs: String,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CPUs {} are of {} and of {}",
            self.cpus, self.ours, self.theirs
        )
    }
}

/// A setting of kubelet to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key in kubelet's configuration, or the step.
    pub key: String,
    /// Its value now.
    pub now: String,
    /// The required value.
    pub wanted: String,
    /// Why it is required.
    pub reason: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} (now {}): {}",
            self.key, self.wanted, self.now, self.reason
        )
    }
}

/// Reasons for which a plan is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The machine cannot be partitioned like this, also without kubelet.
    #[error("{0}")]
    Infeasible(String),
    /// Containers have CPUs of the plan exclusively.
    #[error("{}", joined(.0))]
    Overlap(Vec<Overlap>),
    /// kubelet does not keep containers off the CPUs of the plan.
    #[error("change kubelet's configuration, then restart kubelet: {}", joined(.0))]
    Settings(Vec<Setting>),
}

fn joined<T: fmt::Display>(items: &[T]) -> String {
    let texts: Vec<String> = items.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// Returns the CPUs of the plan that no container may use: those of all groups except the host.
#[must_use]
pub fn taken(plan: &Plan) -> CpuList {
    let groups = plan.groups.iter().filter(|group| group.role != Role::Host);
    groups.flat_map(|group| group.cpus.iter()).collect()
}

/// Plans a request within what kubelet leaves. `owner` is the name of the resource in messages.
///
/// # Errors
/// [`Refusal`].
pub fn plan_beside(
    machine: &Inventory,
    request: &PartitionRequest,
    kubelet: &Kubelet,
    owner: &str,
) -> Result<Plan, Refusal> {
    let reserved = &kubelet.configuration.reserved;
    let free = plan(machine, request).map_err(|error| Refusal::Infeasible(error.to_string()));
    let candidates = within(machine, request, reserved)
        .into_iter()
        .chain(free.as_ref().ok().cloned());
    let fitting = candidates
        .into_iter()
        .find(|candidate| fits(candidate, reserved));
    let chosen = match fitting {
        Some(plan) => plan,
        None => free?,
    };
    check_plan(machine, &chosen, kubelet, owner)?;
    Ok(chosen)
}

/// Checks that kubelet keeps all containers off the CPUs of a plan.
///
/// # Errors
/// [`Refusal::Overlap`] and [`Refusal::Settings`].
pub fn check_plan(
    machine: &Inventory,
    plan: &Plan,
    kubelet: &Kubelet,
    owner: &str,
) -> Result<(), Refusal> {
    let overlaps = overlaps(plan, kubelet, owner);
    if !overlaps.is_empty() {
        return Err(Refusal::Overlap(overlaps));
    }
    let settings = settings(machine, plan, kubelet);
    match settings.is_empty() {
        true => Ok(()),
        false => Err(Refusal::Settings(settings)),
    }
}

/// Returns whether the reserved CPUs contain all CPUs that the plan takes, and at least one more for the host.
fn fits(plan: &Plan, reserved: &CpuList) -> bool {
    let taken = taken(plan);
    taken.difference(reserved).is_empty() && !reserved.difference(&taken).is_empty()
}

/// Returns a plan that takes reserved CPUs only, if there is one: its CPUs are chosen as if the machine had no others.
fn within(machine: &Inventory, request: &PartitionRequest, reserved: &CpuList) -> Option<Plan> {
    let online = machine.cpus_online.clone().unwrap_or_default();
    let part = Inventory {
        cpus_online: Some(online.intersection(reserved)),
        ..machine.clone()
    };
    let chosen = plan(&part, request).ok()?;
    plan(machine, &request::with_cpus_of(request, &chosen)).ok()
}

/// Returns the CPUs that both the plan and a container have.
fn overlaps(plan: &Plan, kubelet: &Kubelet, owner: &str) -> Vec<Overlap> {
    let mut found = Vec::new();
    for group in plan.groups.iter().filter(|group| group.role != Role::Host) {
        for claim in &kubelet.claims {
            let cpus = group.cpus.intersection(&claim.cpus);
            if !cpus.is_empty() {
                found.push(Overlap {
                    cpus,
                    ours: format!("group '{}' of NodePartition '{owner}'", group.name),
                    theirs: claim.owner.clone(),
                });
            }
        }
    }
    found
}

/// Shows a list of CPUs that may be empty.
fn shown(cpus: &CpuList) -> String {
    match cpus.is_empty() {
        true => "unset".to_owned(),
        false => format!("'{cpus}'"),
    }
}

/// Returns the settings that keep all containers off the CPUs of the plan.
fn settings(machine: &Inventory, plan: &Plan, kubelet: &Kubelet) -> Vec<Setting> {
    let configuration = &kubelet.configuration;
    let taken = taken(plan);
    let mut settings = Vec::new();
    if !fits(plan, &configuration.reserved) {
        settings.push(Setting {
            key: "reservedSystemCPUs".to_owned(),
            now: shown(&configuration.reserved),
            wanted: shown(&wanted_reserve(machine, plan, &configuration.reserved)),
            reason: format!(
                "CPUs {taken} belong to the plan, and the host requires at least one other CPU"
            ),
        });
    }
    if !configuration.is_static() {
        settings.push(Setting {
            key: "cpuManagerPolicy".to_owned(),
            now: format!("'{}'", configuration.cpu_manager_policy),
            wanted: format!("'{STATIC}'"),
            reason: "without it every container may run on every CPU".to_owned(),
        });
    }
    if !configuration.is_strict() {
        let now = configuration.cpu_manager_options.get(STRICT);
        settings.push(Setting {
            key: format!("cpuManagerPolicyOptions.{STRICT}"),
            now: now.map_or("unset".to_owned(), |value| format!("'{value}'")),
            wanted: "'true'".to_owned(),
            reason: "without it containers without exclusive CPUs run on reserved CPUs".to_owned(),
        });
    }
    if settings.is_empty() {
        settings.extend(stale(kubelet, &taken));
    }
    settings.extend(recorded_pools(plan, kubelet));
    settings
}

/// Returns the pools of huge pages that kubelet's memory manager has recorded as smaller than the plan makes them.
fn recorded_pools(plan: &Plan, kubelet: &Kubelet) -> Vec<Setting> {
    let state = kubelet.memory_state.as_ref();
    let Some(state) = state.filter(|state| state.policy == STATIC_MEMORY) else {
        return Vec::new();
    };
    let mut settings = Vec::new();
    for pool in &plan.huge_pages {
        let is_of_pool = |node: u32, page_kib: u64| {
            page_kib == pool.page_kib && pool.node.is_none_or(|of_pool| of_pool == node)
        };
        let recorded = state.huge_pages.iter();
        let recorded = recorded
            .filter(|((node, page_kib), _)| is_of_pool(*node, *page_kib))
            .fold(0_u64, |sum, (_, kib)| sum.saturating_add(*kib));
        let planned = pool.pages.saturating_mul(pool.page_kib);
        if recorded >= planned {
            continue;
        }
        let place = pool
            .node
            .map_or_else(String::new, |node| format!(" of node {node}"));
        settings.push(Setting {
            key: "memory_manager_state".to_owned(),
            now: format!("{recorded} KiB"),
            wanted: format!("{planned} KiB in pages of {} KiB{place}", pool.page_kib),
            reason: "kubelet does not start with other huge pages than it has recorded: drain the node, stop kubelet, remove the file, start kubelet after the plan is applied"
                .to_owned(),
        });
    }
    settings
}

/// Returns the step that is left if kubelet runs with an earlier configuration.
fn stale(kubelet: &Kubelet, taken: &CpuList) -> Option<Setting> {
    let state = kubelet.cpu_state.as_ref()?;
    let shared = state.shared.intersection(taken);
    if state.policy == STATIC && shared.is_empty() {
        return None;
    }
    Some(Setting {
        key: "cpu_manager_state".to_owned(),
        now: format!(
            "policy '{}', CPUs of shared containers {}",
            state.policy,
            shown(&state.shared)
        ),
        wanted: format!("policy '{STATIC}', without CPUs {taken}"),
        reason: "kubelet runs with an earlier configuration: drain the node, stop kubelet, remove the file, start kubelet"
            .to_owned(),
    })
}

/// Returns the CPUs to reserve: those that are reserved, those that the plan takes, and a core of the host.
fn wanted_reserve(machine: &Inventory, plan: &Plan, reserved: &CpuList) -> CpuList {
    let taken = taken(plan);
    let wanted = reserved.union(&taken);
    if !wanted.difference(&taken).is_empty() {
        return wanted;
    }
    let host = plan.cpus(Role::Host);
    let first = host.first().map(|cpu| core_of(machine, cpu));
    wanted.union(&first.unwrap_or_default().intersection(&host))
}

/// Returns the threads of a CPU's core.
fn core_of(machine: &Inventory, cpu: CpuId) -> CpuList {
    let siblings = machine.cpu(cpu).and_then(|place| place.siblings.clone());
    let own: CpuList = [cpu].into_iter().collect();
    own.union(&siblings.unwrap_or_default())
}
