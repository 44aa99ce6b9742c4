// SPDX-License-Identifier: Apache-2.0
//! Planner: turns an inventory and a request into a plan. Pure: the same input always gives the same plan.
//!
//! The planner records every request that the machine cannot satisfy as a conflict and replaces it by the nearest possible
//! one. It then plans the changed request again, until there are no more conflicts. The nearest plan is therefore exactly
//! the plan of the nearest request.

mod boot;
mod cache;
mod cores;
mod frequency;
mod lists;
mod memory;
mod nics;
mod place;
#[cfg(test)]
pub(crate) mod tests;

use crate::inventory::Inventory;
use crate::{CpuId, CpuList};

use super::plan::{Group, Plan, Reason, Role};
use super::request::{CpuRequest, PartitionRequest};
use cores::Cores;

/// Default number of ring slots: enough for the bursts of 100 Gbit/s between two polls.
const RING_SIZE: u16 = 1024;
/// Supported numbers of descriptors in a data plane's ring.
const RING_SIZES: std::ops::RangeInclusive<u16> = 32..=16384;
/// Maximum number of planning rounds. Each round removes something from the request, so a few are enough.
const TURNS_MAX: usize = 32;

/// Conflicts of a request that cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfeasibleRequest {
    /// All conflicts.
    pub conflicts: Vec<Conflict>,
    /// The nearest possible request and its plan. `None` if the machine is too small for any plan.
    pub nearest: Option<(PartitionRequest, Plan)>,
}

/// One part of a request that cannot be satisfied.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Conflict {
    /// The object: a group's name, a network card's address or `machine`.
    pub subject: String,
    /// The requested value and the reason why it is impossible.
    pub text: String,
    /// The value in the nearest plan.
    pub suggestion: String,
}

impl std::fmt::Display for InfeasibleRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, conflict) in self.conflicts.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(
                f,
                "{}: {}; nearest: {}",
                conflict.subject, conflict.text, conflict.suggestion
            )?;
        }
        if self.nearest.is_none() {
            f.write_str("\nno plan is possible: the machine is too small for a forwarding core beside the host's core")?;
        }
        Ok(())
    }
}

impl std::error::Error for InfeasibleRequest {}

/// Plans a request for a machine.
///
/// # Errors
/// [`InfeasibleRequest`]: all conflicts and the nearest plan.
pub fn plan(
    machine: &Inventory,
    request: &PartitionRequest,
) -> Result<Plan, Box<InfeasibleRequest>> {
    let mut request = request.clone();
    let mut conflicts = Vec::new();
    for _ in 0..TURNS_MAX {
        let mut attempt = Attempt::new(machine, &request);
        let plan = attempt.solve();
        let is_possible = attempt.conflicts.is_empty();
        for conflict in attempt.conflicts {
            if !conflicts.contains(&conflict) {
                conflicts.push(conflict);
            }
        }
        if is_possible {
            return match (plan, conflicts.is_empty()) {
                (Some(plan), true) => Ok(plan),
                (plan, _) => Err(Box::new(InfeasibleRequest {
                    conflicts,
                    nearest: plan.map(|plan| (request, plan)),
                })),
            };
        }
        if attempt.nearest == request {
            break;
        }
        request = attempt.nearest;
    }
    Err(Box::new(InfeasibleRequest {
        conflicts,
        nearest: None,
    }))
}

/// Position of a group in the request, needed to change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestSection {
    Host,
    Control,
    Service,
    Forwarding,
    Guest(usize),
    Neighbour(usize),
    /// CPUs that stay idle. They are in no request.
    Idle,
}

/// A group during the assignment of CPUs.
#[derive(Clone, Debug)]
struct Member {
    section: RequestSection,
    role: Role,
    name: String,
    cpus: Option<CpuRequest>,
    node: Option<u32>,
    cache_percent: Option<u8>,
    bandwidth_percent: Option<u8>,
}

/// One planning round.
struct Attempt<'a> {
    machine: &'a Inventory,
    request: &'a PartitionRequest,
    online: CpuList,
    cores: Cores,
    members: Vec<Member>,
    conflicts: Vec<Conflict>,
    reasons: Vec<Reason>,
    nearest: PartitionRequest,
}

impl<'a> Attempt<'a> {
    fn new(machine: &'a Inventory, request: &'a PartitionRequest) -> Self {
        let online = machine.cpus_online.clone().unwrap_or_default();
        Self {
            machine,
            request,
            cores: Cores::new(machine, &online),
            online,
            members: members(request),
            conflicts: Vec::new(),
            reasons: Vec::new(),
            nearest: request.clone(),
        }
    }

    /// Returns the plan. `None` if not even the smallest plan fits.
    fn solve(&mut self) -> Option<Plan> {
        self.check_names();
        if self.online.len() < 2 {
            let online = self.online.len();
            self.conflict(
                "machine",
                format!("at least 2 CPUs are required (one forwards, one runs everything else), but only {online} is online"),
                "none",
            );
            return None;
        }
        self.explain_nodes();
        self.known_nics();
        self.take_lists();
        self.place();
        if self
            .cores
            .of(self.index(RequestSection::Forwarding))
            .is_empty()
        {
            return None;
        }
        let groups = self.groups();
        let mut plan = Plan {
            housekeeping: housekeeping(&groups),
            groups,
            rx_ring_size: self.ring_size("rx-ring-size", self.request.forwarding.rx_ring_size),
            tx_ring_size: self.ring_size("tx-ring-size", self.request.forwarding.tx_ring_size),
            idle: self.request.forwarding.idle,
            data_plane: self.request.forwarding.data_plane,
            vendor: Some(self.machine.vendor()),
            ..Plan::default()
        };
        self.share_caches(&mut plan);
        self.size_memory(&mut plan);
        self.assign_queues(&mut plan);
        self.set_frequencies(&mut plan);
        self.boot_parameters(&mut plan);
        plan.reasons = std::mem::take(&mut self.reasons);
        Some(plan)
    }

    /// Explains unknown NUMA nodes: a machine that does not report its nodes may have several.
    fn explain_nodes(&mut self) {
        let cpus = self.cores.without_node();
        if !cpus.is_empty() {
            self.reason(
                "numa",
                format!("the NUMA nodes of CPUs {cpus} are unknown: /sys/devices/system/node shows neither cpulist nor cpumap with them. CPUs, memory and network cards may be on different nodes"),
            );
        }
    }

    fn ring_size(&mut self, key: &str, entry: Option<u16>) -> u16 {
        let size = entry.unwrap_or(RING_SIZE);
        if size.is_power_of_two() && RING_SIZES.contains(&size) {
            return size;
        }
        self.conflict(
            "forwarding",
            format!(
                "{key} = {size} is not a power of two from {} to {}",
                RING_SIZES.start(),
                RING_SIZES.end()
            ),
            RING_SIZE.to_string(),
        );
        RING_SIZE
    }

    fn conflict(&mut self, subject: &str, text: impl Into<String>, suggestion: impl Into<String>) {
        self.conflicts.push(Conflict {
            subject: subject.to_owned(),
            text: text.into(),
            suggestion: suggestion.into(),
        });
    }

    fn reason(&mut self, subject: &str, text: impl Into<String>) {
        self.reasons.push(Reason {
            subject: subject.to_owned(),
            text: text.into(),
        });
    }

    /// Returns the index of a group. Every request has the groups that callers look up.
    fn index(&self, section: RequestSection) -> usize {
        let found = self
            .members
            .iter()
            .position(|member| member.section == section);
        found.unwrap_or(0)
    }

    fn member(&self, index: usize) -> Option<&Member> {
        self.members.get(index)
    }

    fn name(&self, index: usize) -> String {
        self.member(index)
            .map_or_else(String::new, |member| member.name.clone())
    }

    /// Replaces a group's CPU request for the next planning round.
    fn suggest_request(&mut self, index: usize, cpus: Option<CpuRequest>) {
        let Some(member) = self.members.get(index) else {
            return;
        };
        let entry = match member.section {
            RequestSection::Host => &mut self.nearest.host.cpus,
            RequestSection::Control => match &mut self.nearest.control {
                Some(entry) => &mut entry.cpus,
                None => return,
            },
            RequestSection::Service => match &mut self.nearest.service {
                Some(entry) => &mut entry.cpus,
                None => return,
            },
            RequestSection::Forwarding => &mut self.nearest.forwarding.cpus,
            RequestSection::Guest(at) => match self.nearest.guests.get_mut(at) {
                Some(entry) => &mut entry.cpus,
                None => return,
            },
            RequestSection::Neighbour(at) => match self.nearest.neighbours.get_mut(at) {
                Some(entry) => &mut entry.cpus,
                None => return,
            },
            RequestSection::Idle => return,
        };
        *entry = cpus;
    }

    /// Checks the names of groups, which become names of directories, cgroups and libvirt domains.
    fn check_names(&mut self) {
        let reserved = Role::ALL.map(Role::name);
        let mut taken: Vec<String> = reserved.iter().map(|name| (*name).to_owned()).collect();
        taken.extend(
            [
                "default",
                "guests",
                "neighbours",
                "info",
                "mon_groups",
                "mon_data",
            ]
            .map(str::to_owned),
        );
        for index in 0..self.members.len() {
            let Some(Member { section, name, .. }) = self.members.get(index).cloned() else {
                continue;
            };
            let (kind, at) = match section {
                RequestSection::Guest(at) => ("guest", at),
                RequestSection::Neighbour(at) => ("neighbour", at),
                _ => continue,
            };
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            let is_good = !name.is_empty()
                && name.len() <= 32
                && name.chars().all(is_plain)
                && !name.starts_with('-');
            if is_good && !taken.contains(&name) {
                taken.push(name);
                continue;
            }
            let mut number = at.saturating_add(1);
            while taken.contains(&format!("{kind}-{number}")) {
                number = number.saturating_add(1);
            }
            let suggestion = format!("{kind}-{number}");
            let text = if is_good {
                format!("the name '{name}' is already in use")
            } else {
                format!(
                    "'{name}' is not a valid name of a {kind} (use 1 to 32 letters, digits, '-' and '_')"
                )
            };
            self.conflict(kind, text, suggestion.clone());
            taken.push(suggestion.clone());
            match section {
                RequestSection::Guest(at) => {
                    if let Some(guest) = self.nearest.guests.get_mut(at) {
                        guest.name.clone_from(&suggestion);
                    }
                }
                _ => {
                    if let Some(neighbour) = self.nearest.neighbours.get_mut(at) {
                        neighbour.name.clone_from(&suggestion);
                    }
                }
            }
            if let Some(member) = self.members.get_mut(index) {
                member.name = suggestion;
            }
        }
    }

    /// Returns the groups that have CPUs.
    fn groups(&self) -> Vec<Group> {
        let groups = self.members.iter().enumerate().map(|(index, member)| {
            let cpus = self.cores.of(index);
            Group {
                role: member.role,
                name: member.name.clone(),
                cores: self.cores.by_core(&cpus),
                nodes: self.cores.nodes_of(&cpus).into_iter().flatten().collect(),
                cpus,
                memory_mib: 0,
                class: None,
            }
        });
        groups.filter(|group| !group.cpus.is_empty()).collect()
    }
}

fn housekeeping(groups: &[Group]) -> CpuList {
    let kept = [Role::Host, Role::Control, Role::Service];
    let groups = groups.iter().filter(|group| kept.contains(&group.role));
    groups
        .flat_map(|group| group.cpus.iter())
        .collect::<CpuList>()
}

/// Returns all groups by priority: if two groups request the same CPU, the first one gets it.
fn members(request: &PartitionRequest) -> Vec<Member> {
    let plain = |section, role: Role| Member {
        section,
        role,
        name: role.name().to_owned(),
        cpus: None,
        node: None,
        cache_percent: None,
        bandwidth_percent: None,
    };
    let forwarding = &request.forwarding;
    let mut members = vec![
        Member {
            cpus: forwarding.cpus.clone(),
            node: forwarding.node,
            cache_percent: forwarding.cache_percent,
            bandwidth_percent: forwarding.bandwidth_percent,
            ..plain(RequestSection::Forwarding, Role::Forwarding)
        },
        Member {
            cpus: request.host.cpus.clone(),
            cache_percent: request.host.cache_percent,
            bandwidth_percent: request.host.bandwidth_percent,
            ..plain(RequestSection::Host, Role::Host)
        },
    ];
    let helpers = [
        (RequestSection::Control, Role::Control, &request.control),
        (RequestSection::Service, Role::Service, &request.service),
    ];
    for (section, role, entry) in helpers {
        members.extend(entry.as_ref().map(|entry| Member {
            cpus: entry.cpus.clone(),
            cache_percent: entry.cache_percent,
            bandwidth_percent: entry.bandwidth_percent,
            ..plain(section, role)
        }));
    }
    members.extend(request.guests.iter().enumerate().map(|(at, entry)| Member {
        name: entry.name.clone(),
        cpus: entry.cpus.clone(),
        node: entry.node,
        cache_percent: entry.cache_percent,
        bandwidth_percent: entry.bandwidth_percent,
        ..plain(RequestSection::Guest(at), Role::Guest)
    }));
    members.extend(
        request
            .neighbours
            .iter()
            .enumerate()
            .map(|(at, entry)| Member {
                name: entry.name.clone(),
                cpus: entry.cpus.clone(),
                node: entry.node,
                cache_percent: entry.cache_percent,
                bandwidth_percent: entry.bandwidth_percent,
                ..plain(RequestSection::Neighbour(at), Role::Neighbour)
            }),
    );
    members.push(plain(RequestSection::Idle, Role::Idle));
    members
}

/// Formats CPUs as a list for a message.
fn listed(cpus: &[CpuId]) -> String {
    cpus.iter().copied().collect::<CpuList>().to_string()
}
