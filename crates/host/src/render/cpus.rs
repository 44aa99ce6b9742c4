// SPDX-License-Identifier: Apache-2.0
//! CPUs of a plan, for several renderers.

use crate::CpuList;
use crate::partition::{Plan, Role};

/// Returns the CPUs of control threads: those of control, otherwise of service, otherwise of the host.
pub(super) fn control(plan: &Plan) -> CpuList {
    first_of(plan, &[Role::Control, Role::Service, Role::Host])
}

/// Returns the CPUs of service threads: those of service, otherwise of control, otherwise of the host.
pub(super) fn service(plan: &Plan) -> CpuList {
    first_of(plan, &[Role::Service, Role::Control, Role::Host])
}

pub(super) fn first_of(plan: &Plan, roles: &[Role]) -> CpuList {
    let lists = roles.iter().map(|role| plan.cpus(*role));
    lists
        .into_iter()
        .find(|cpus| !cpus.is_empty())
        .unwrap_or_default()
}

/// Returns the CPUs of all groups.
pub(super) fn all(plan: &Plan) -> CpuList {
    plan.groups
        .iter()
        .flat_map(|group| group.cpus.iter())
        .collect()
}
