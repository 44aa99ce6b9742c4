// SPDX-License-Identifier: Apache-2.0
//! CPUs of a plan as several programs take them.

use crate::CpuList;
use crate::partition::{Plan, Role};

/// CPUs of control threads: their own, or those of service, or of the host.
pub(super) fn control(plan: &Plan) -> CpuList {
    first_of(plan, &[Role::Control, Role::Service, Role::Host])
}

/// CPUs of service threads: their own, or those of control, or of the host.
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

/// CPUs of every group.
pub(super) fn all(plan: &Plan) -> CpuList {
    plan.groups
        .iter()
        .flat_map(|group| group.cpus.iter())
        .collect()
}
