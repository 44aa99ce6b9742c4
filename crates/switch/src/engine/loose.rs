// SPDX-License-Identifier: Apache-2.0
//! Queues and rings on their way between threads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::assign::QueueId;
use crate::forward::{Input, Relay};

/// Receive queues and rings that are in no thread, and whether threads differ from the plan.
#[derive(Debug, Default)]
pub(super) struct Loose {
    pub(super) inputs: BTreeMap<QueueId, Box<Input>>,
    #[allow(clippy::vec_box)]
    pub(super) relays: Vec<Box<Relay>>,
    /// CPUs of threads that may read rings without a writer.
    pub(super) abandoned: BTreeSet<u32>,
    /// CPUs of threads that may have a ring from the service thread without a writer.
    pub(super) injecting: BTreeSet<u32>,
    /// True if an order failed, so that threads may differ from the plan.
    pub(super) is_unsettled: bool,
    /// Time of the last attempt to complete an interrupted change.
    pub(super) tried: Option<Instant>,
}
