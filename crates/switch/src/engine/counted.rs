// SPDX-License-Identifier: Apache-2.0
//! Rules of the configuration with their frame counters.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::config::kernel_filter::KernelFilterSetting;
use crate::config::rules::RuleSetting;
use quietwire_tables::filter::Fallback;

/// A kernel filter and its number of matched frames.
pub(super) type CountedFilter = (KernelFilterSetting, Arc<AtomicU64>);

/// Filter rules and the number of frames each has decided on.
#[derive(Clone, Debug, Default)]
pub(super) struct CountedRules {
    pub(super) rules: Vec<(RuleSetting, Arc<AtomicU64>)>,
    pub(super) fallback: Fallback,
}
