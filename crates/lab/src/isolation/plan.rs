// SPDX-License-Identifier: Apache-2.0
//! The partition plan of an isolation case on a machine: the planner of `quietwire partition` makes a plan, of which the case's parts are
//! kept. Returns a reason if the machine does not support the case. Pure: reads and changes nothing.

use std::collections::BTreeMap;

use quietwire_host::inventory::{Inventory, Nic};
use quietwire_host::partition::{
    CpuRequest, ForwardingRequest, FrequencySetting, NeighbourRequest, NicRequest,
    PartitionRequest, Plan, Role, plan,
};
use quietwire_host::{CpuId, CpuList};

use super::cases::{IsolationCase, IsolationPart};
use super::classes;
use crate::neighbours::siblings;

/// Assignment of CPUs and ports during a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Forwarding CPUs.
    pub forwarding: CpuList,
    /// CPUs of the tester, and of the device's other threads.
    pub apparatus: CpuList,
    /// NICs that are the device's ports, by PCI address; empty if it is connected within the machine.
    pub ports: Vec<String>,
}

impl IsolationCase {
    /// Returns the reason, as a clause, why a machine does not support this case; `None` if it does. Without a setup, only the machine is
    /// checked, for any forwarding CPUs.
    #[must_use]
    pub fn unavailable(&self, machine: &Inventory, setup: Option<&Setup>) -> Option<String> {
        match setup {
            None => self.parts_on(machine, None).err(),
            Some(setup) => self.plan(machine, setup).err(),
        }
    }

    /// Returns the parts that the case has on a machine.
    ///
    /// # Errors
    /// The reason, as a clause, why the machine does not support the case.
    pub fn parts_on(
        &self,
        machine: &Inventory,
        setup: Option<&Setup>,
    ) -> Result<Vec<IsolationPart>, String> {
        let lacks = |part: &IsolationPart| lacks(*part, machine, setup);
        if let Some(reason) = self.parts.iter().find_map(lacks) {
            return Err(reason);
        }
        let mut parts = self.parts.to_vec();
        let there = self
            .if_available
            .iter()
            .filter(|part| lacks(part).is_none());
        parts.extend(there);
        if parts.len() == self.parts.len() && !self.if_available.is_empty() {
            let missing = self.if_available.iter().filter_map(lacks);
            let missing: Vec<String> = missing.collect();
            return Err(format!(
                "the machine supports no means beyond those of isolated: {}",
                missing.join("; ")
            ));
        }
        Ok(parts)
    }

    /// Returns the plan to apply to a machine; `None` if the case changes nothing outside the device.
    ///
    /// # Errors
    /// The reason, as a clause, why the machine does not support the case.
    pub fn plan(&self, machine: &Inventory, setup: &Setup) -> Result<Option<Plan>, String> {
        let parts = self.parts_on(machine, Some(setup))?;
        if !parts.contains(&IsolationPart::Isolated) {
            return Ok(None);
        }
        let has = |part| parts.contains(&part);
        let mut planned = machine.clone();
        if !has(IsolationPart::IdleSiblings) {
            // The planner then treats each thread as a core, and the others may run on a forwarding core's second thread.
            for place in &mut planned.cpus {
                place.siblings = Some([place.cpu].into_iter().collect());
            }
        }
        let shares = has(IsolationPart::Cache) || has(IsolationPart::Bandwidth);
        let shares_both = has(IsolationPart::Cache) && has(IsolationPart::Bandwidth);
        let others = others(machine, setup, has(IsolationPart::IdleSiblings));
        let request = PartitionRequest {
            forwarding: ForwardingRequest {
                cpus: Some(CpuRequest::These(setup.forwarding.clone())),
                ..ForwardingRequest::default()
            },
            // CPUs with their own class are a group while classes are made.
            neighbours: (shares && !others.is_empty())
                .then(|| NeighbourRequest {
                    name: classes::OTHERS.to_owned(),
                    cpus: Some(CpuRequest::These(others.clone())),
                    bandwidth_percent: has(IsolationPart::Bandwidth)
                        .then_some(classes::BANDWIDTH_PERCENT),
                    ..NeighbourRequest::default()
                })
                .into_iter()
                .collect(),
            nics: if has(IsolationPart::VirtualFunctions) {
                functions(machine, &setup.ports)
            } else {
                Vec::new()
            },
            ..PartitionRequest::default()
        };
        let mut made = plan(&planned, &request).map_err(|impossible| {
            let conflicts = impossible.conflicts.iter();
            let texts: Vec<String> = conflicts
                .map(|conflict| format!("{}: {}", conflict.subject, conflict.text))
                .collect();
            texts.join("; ")
        })?;
        keep_parts(&mut made, &parts);
        if shares_both {
            classes::share_as_published(&mut made, machine);
        }
        if has(IsolationPart::NominalFrequency) {
            made.frequencies = nominal_frequencies(machine, &made.isolated());
        }
        join_host(&mut made, &others);
        Ok(Some(made))
    }
}

/// Removes everything that is not part of the case from a plan.
fn keep_parts(plan: &mut Plan, parts: &[IsolationPart]) {
    let has = |part| parts.contains(&part);
    // The lab reserves its own huge pages, and needs nothing for the next boot.
    plan.huge_pages.clear();
    plan.boot.clear();
    if !has(IsolationPart::BaseFrequency) {
        plan.frequencies.clear();
    }
    if !has(IsolationPart::Cache) && !has(IsolationPart::Bandwidth) {
        plan.classes.clear();
    }
    for class in &mut plan.classes {
        if !has(IsolationPart::Cache) {
            class.masks.clear();
        }
        if !has(IsolationPart::Bandwidth) {
            class.bandwidth.clear();
        }
    }
    let is_reported = |subject: &str| match subject {
        "huge-pages" | "boot" => false,
        "frequency" => has(IsolationPart::BaseFrequency),
        "cache" => has(IsolationPart::Cache) || has(IsolationPart::Bandwidth),
        _ => true,
    };
    plan.reasons.retain(|reason| is_reported(&reason.subject));
}

/// Returns settings of every CPU at the processor's nominal frequency, and of isolated CPUs without frequency changes.
fn nominal_frequencies(machine: &Inventory, isolated: &CpuList) -> Vec<FrequencySetting> {
    const GOVERNOR: &str = "performance";
    let nominal = machine.nominal_khz();
    let online = machine.cpus_online.clone().unwrap_or_default();
    let has_governor = |cpu| {
        let frequency = machine.cpu(cpu).and_then(|place| place.frequency.as_ref());
        frequency.is_some_and(|it| it.governors.iter().any(|name| name == GOVERNOR))
    };
    let (quiet, rest): (Vec<_>, Vec<_>) = online
        .iter()
        .partition(|cpu| isolated.contains(*cpu) && has_governor(*cpu));
    [(quiet, Some(GOVERNOR)), (rest, None)]
        .into_iter()
        .filter(|(cpus, _)| !cpus.is_empty())
        .map(|(cpus, governor)| FrequencySetting {
            cpus: cpus.into_iter().collect(),
            governor: governor.map(str::to_owned),
            min_khz: nominal,
            max_khz: nominal,
            is_high_priority: false,
        })
        .collect()
}

/// Adds the CPUs of others to the host: all other work on the machine may run there, in their class.
fn join_host(plan: &mut Plan, others: &CpuList) {
    let Some(at) = plan
        .groups
        .iter()
        .position(|group| group.role == Role::Neighbour)
    else {
        return;
    };
    let joined = plan.groups.remove(at);
    if let Some(host) = plan
        .groups
        .iter_mut()
        .find(|group| group.role == Role::Host)
    {
        host.cpus = host.cpus.union(others);
        host.cores.extend(joined.cores);
        host.cores.sort_by_key(|core| core.first());
        host.nodes.extend(joined.nodes);
        host.nodes.sort_unstable();
        host.nodes.dedup();
    }
    plan.housekeeping = plan.housekeeping.union(others);
}

/// Returns the CPUs that neither forward, nor belong to tester or device, nor stay idle.
fn others(machine: &Inventory, setup: &Setup, are_siblings_idle: bool) -> CpuList {
    let online = machine.cpus_online.clone().unwrap_or_default();
    let rest = online
        .difference(&setup.forwarding)
        .difference(&setup.apparatus);
    if are_siblings_idle {
        rest.difference(&siblings(machine, &setup.forwarding))
    } else {
        rest
    }
}

/// As many functions of each physical function as it has ports, and at least as many as it has now.
fn functions(machine: &Inventory, ports: &[String]) -> Vec<NicRequest> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for port in ports {
        let count = counts.entry(port).or_default();
        *count = count.saturating_add(1);
    }
    let request = |(address, count): (&str, u32)| {
        let there = nic(machine, address).and_then(|nic| nic.functions);
        NicRequest {
            pci: address.to_owned(),
            functions: Some(count.max(there.unwrap_or(0))),
            ..NicRequest::default()
        }
    };
    counts.into_iter().map(request).collect()
}

fn nic<'a>(machine: &'a Inventory, address: &str) -> Option<&'a Nic> {
    machine.nics.iter().find(|nic| nic.pci_address == address)
}

/// Returns the reason why a machine, or a setup on it, does not support one part; `None` if it does.
fn lacks(part: IsolationPart, machine: &Inventory, setup: Option<&Setup>) -> Option<String> {
    match part {
        IsolationPart::Pinned => None,
        IsolationPart::Isolated => lacks_cpus(machine, setup),
        IsolationPart::IdleSiblings => lacks_siblings(machine, setup),
        IsolationPart::Cache => lacks_cache(machine),
        IsolationPart::Bandwidth => lacks_bandwidth(machine, setup),
        IsolationPart::BaseFrequency => lacks_priority(machine, setup),
        IsolationPart::NominalFrequency => lacks_nominal(machine),
        IsolationPart::VirtualFunctions => lacks_functions(machine, setup),
    }
}

fn lacks_cpus(machine: &Inventory, setup: Option<&Setup>) -> Option<String> {
    let online = machine.cpus_online.clone().unwrap_or_default();
    let forwarding = setup.map(|setup| &setup.forwarding);
    if online.len() < 2 {
        return Some(format!(
            "no CPU can be isolated: other work requires one, and only CPU {} is online",
            online.len()
        ));
    }
    if machine.cpusets.is_none() {
        return Some(
            "the kernel does not support CPU sets, which isolate a CPU from other work".to_owned(),
        );
    }
    let all = forwarding.filter(|forwarding| online.difference(forwarding).is_empty());
    all.map(|all| format!("the CPUs {all} forward, so no CPU is left for other work"))
}

fn lacks_siblings(machine: &Inventory, setup: Option<&Setup>) -> Option<String> {
    let online = machine.cpus_online.clone().unwrap_or_default();
    let of = setup.map_or(&online, |setup| &setup.forwarding);
    let has_any = of.iter().any(|cpu| {
        let one: CpuList = [cpu].into_iter().collect();
        !siblings(machine, &one).intersection(&online).is_empty()
    });
    if !has_any {
        return Some(
            "no core runs more than one thread, so no forwarding CPU has a sibling".to_owned(),
        );
    }
    let setup = setup?;
    let idle = siblings(machine, &setup.forwarding).intersection(&online);
    if idle.is_empty() {
        return Some("the siblings of the forwarding CPUs forward themselves".to_owned());
    }
    let used = idle.intersection(&setup.apparatus);
    (!used.is_empty()).then(|| {
        format!("CPU {used} is a sibling of a forwarding CPU, but the tester or another thread of the device uses it")
    })
}

/// Returns the reason why resctrl is unavailable.
fn without_resctrl(machine: &Inventory, flag: &str) -> &'static str {
    let rdt = &machine.rdt;
    let has_flag = rdt.cpu_flags.iter().any(|known| known.starts_with(flag));
    if rdt.is_mounted {
        "resctrl does not support it"
    } else if has_flag {
        "resctrl is not mounted (run `mount -t resctrl resctrl /sys/fs/resctrl`)"
    } else {
        "the processor or the kernel does not support resctrl"
    }
}

fn lacks_cache(machine: &Inventory) -> Option<String> {
    let caches = machine.rdt.caches.iter();
    let Some(cache) = caches.max_by_key(|cache| cache.level) else {
        let reason = without_resctrl(machine, "cat_");
        return Some(format!("the cache cannot be allocated (CAT): {reason}"));
    };
    let last = machine.caches.iter().map(|cache| cache.level).max();
    if last.is_some_and(|last| last > cache.level) {
        return Some(format!(
            "the last-level cache cannot be allocated, only level {}",
            cache.level
        ));
    }
    lacks_classes(machine)
}

fn lacks_classes(machine: &Inventory) -> Option<String> {
    let most = machine.rdt.classes_max().unwrap_or(0);
    (most < 2).then(|| "the processor supports only one class of service".to_owned())
}

fn lacks_bandwidth(machine: &Inventory, setup: Option<&Setup>) -> Option<String> {
    if machine.rdt.bandwidth.is_none() {
        let reason = without_resctrl(machine, "mba");
        return Some(format!(
            "memory bandwidth cannot be limited (MBA): {reason}"
        ));
    }
    let nobody = setup.is_some_and(|setup| others(machine, setup, false).is_empty());
    let without = nobody.then(|| {
        "no CPU outside device and tester is left whose bandwidth could be limited".to_owned()
    });
    without.or_else(|| classes::lacking(machine))
}

fn lacks_priority(machine: &Inventory, setup: Option<&Setup>) -> Option<String> {
    let high = machine.high_priority();
    if high.is_empty() {
        let are_reported = machine.cpus.iter().any(|place| {
            let frequency = place.frequency.as_ref();
            frequency.is_some_and(|it| it.base_khz.is_some() || it.guaranteed_performance.is_some())
        });
        let reason = if are_reported {
            "all cores have the same base frequency"
        } else {
            "the kernel reports no base frequency"
        };
        return Some(format!("no core has high priority (SST-BF): {reason}"));
    }
    let low = setup?.forwarding.difference(&high);
    (!low.is_empty()).then(|| {
        format!(
            "forwarding CPU {low} is not one of SST-BF's cores of high priority, which are {high}"
        )
    })
}

/// Returns why CPUs cannot run at the nominal frequency: it must be known, and within the limits of cpufreq.
fn lacks_nominal(machine: &Inventory) -> Option<String> {
    let Some(nominal) = machine.nominal_khz() else {
        return Some(
            "the processor's name (`model name` in /proc/cpuinfo) states no nominal frequency"
                .to_owned(),
        );
    };
    let mut online = machine.cpus_online.iter().flat_map(CpuList::iter);
    let is_out = |cpu: &CpuId| {
        let frequency = machine.cpu(*cpu).and_then(|place| place.frequency.as_ref());
        let range = frequency.and_then(|it| it.lowest_khz.zip(it.highest_khz));
        range.is_none_or(|(lowest, highest)| !(lowest..=highest).contains(&nominal))
    };
    online.find(is_out).map(|cpu| {
        format!(
            "CPU {cpu} cannot be set to the nominal frequency of {} MHz",
            nominal / 1000
        )
    })
}

fn lacks_functions(machine: &Inventory, setup: Option<&Setup>) -> Option<String> {
    let has_functions = |nic: &Nic| nic.functions_max.unwrap_or(0) > 0;
    if !machine.nics.iter().any(has_functions) {
        return Some("no network controller has virtual functions (SR-IOV)".to_owned());
    }
    let setup = setup?;
    if setup.ports.is_empty() {
        return Some(
            "the device is connected within the machine: none of its ports is on a network controller"
                .to_owned(),
        );
    }
    let without = setup
        .ports
        .iter()
        .find(|port| !nic(machine, port).is_some_and(has_functions));
    if let Some(port) = without {
        return Some(format!(
            "the network controller {port} has no virtual functions"
        ));
    }
    // A case must not delete functions that it does not know.
    let is_unknown = |nic: &Nic| nic.functions.is_none();
    let mut ports = setup.ports.iter();
    let unknown = ports.find(|port| nic(machine, port).is_some_and(is_unknown));
    unknown.map(|port| {
        format!("the number of virtual functions of the network controller {port} cannot be read (check its driver)")
    })
}
