// SPDX-License-Identifier: Apache-2.0
//! A partition of the machine: who is to have which CPUs, cache, bandwidth, memory and interrupts. From what is wished
//! and what the machine is comes one plan, and all else (files for other programs, changes to the machine, checks) is
//! made from the plan.

mod derive;
#[cfg(test)]
pub(crate) mod parts;
mod plan;
mod solve;
mod wishes;

pub(crate) use derive::USER_SPACE_DRIVERS;
pub use derive::{Proposal, derive, propose};
pub use quietwire_base::Idle;

pub use plan::{
    Bandwidth, BootParameter, CacheMask, Class, FrequencySetting, Group, HugePages, NicPlan, Plan,
    QueueCpu, Reason, Role,
};
#[cfg(test)]
pub(crate) use solve::tests as samples;
pub use solve::{Conflict, Impossible, plan};
pub use wishes::{
    CpuWish, DataPlaneWish, ForwardingWish, GroupWish, GuestWish, HostWish, MachineWish, NicWish,
    SiblingPolicy, Wishes, WishesError,
};
