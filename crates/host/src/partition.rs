// SPDX-License-Identifier: Apache-2.0
//! Partition of a machine: assignment of CPUs, cache, memory bandwidth, huge pages and interrupts to roles. The planner
//! combines a request with the inventory into one plan. All files for other programs, changes and checks are generated from
//! the plan.

mod derive;
#[cfg(test)]
pub(crate) mod parts;
mod plan;
mod request;
mod solve;

pub(crate) use derive::USER_SPACE_DRIVERS;
pub use derive::{Proposal, derive, propose};
pub use quietwire_base::Idle;

pub use plan::{
    Bandwidth, BootParameter, CacheMask, Class, FrequencySetting, Group, HugePages, NODE_MAX,
    NicPlan, Plan, QueueCpu, Reason, Role,
};
pub use request::{
    CpuRequest, DataPlaneRequest, ForwardingRequest, GuestRequest, HostRequest, MachineRequest,
    NeighbourRequest, NicRequest, PartitionRequest, PartitionRequestError, SiblingPolicy,
};
#[cfg(test)]
pub(crate) use solve::tests as samples;
pub use solve::{Conflict, InfeasibleRequest, plan};
