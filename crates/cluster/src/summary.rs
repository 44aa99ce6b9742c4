// SPDX-License-Identifier: Apache-2.0
//! Summaries of the reports of all nodes in the status of partitions and data planes: counts, the first node that has not changed, and the
//! first failures. The size of a summary does not depend on the number of nodes.

mod compute;
mod controller;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use compute::of_partition;
#[cfg(test)]
pub(crate) use controller::Summaries;
pub(crate) use controller::serve;
