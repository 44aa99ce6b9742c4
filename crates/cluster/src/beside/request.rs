// SPDX-License-Identifier: Apache-2.0
//! A request with the CPUs of a plan.

use quietwire_host::CpuList;
use quietwire_host::partition::{CpuRequest, PartitionRequest, Plan, Role};

/// Returns the request with the lists of CPUs that the plan has chosen.
pub(super) fn with_cpus_of(request: &PartitionRequest, plan: &Plan) -> PartitionRequest {
    let of_role = |role| listed(plan.cpus(role));
    let of_group = |name: &str| {
        plan.group(name)
            .and_then(|group| listed(group.cpus.clone()))
    };
    let mut request = request.clone();
    request.host.cpus = of_role(Role::Host).or(request.host.cpus);
    if let Some(control) = &mut request.control {
        control.cpus = of_role(Role::Control).or(control.cpus.take());
    }
    if let Some(service) = &mut request.service {
        service.cpus = of_role(Role::Service).or(service.cpus.take());
    }
    let forwarding = &mut request.forwarding;
    forwarding.cpus = of_role(Role::Forwarding).or(forwarding.cpus.take());
    for guest in &mut request.guests {
        guest.cpus = of_group(&guest.name).or(guest.cpus.take());
    }
    for neighbour in &mut request.neighbours {
        neighbour.cpus = of_group(&neighbour.name).or(neighbour.cpus.take());
    }
    request
}

fn listed(cpus: CpuList) -> Option<CpuRequest> {
    (!cpus.is_empty()).then_some(CpuRequest::These(cpus))
}
