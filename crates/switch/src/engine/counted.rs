// SPDX-License-Identifier: Apache-2.0
//! Rules of the configuration with the frames that each has matched.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::config::kernel_filter::KernelFilterSetting;
use crate::config::rules::{Action, RuleSetting};

/// A rule, and the frames that it has matched.
pub(super) type CountedFilter = (KernelFilterSetting, Arc<AtomicU64>);

/// Rules, with the frames that each has decided on.
#[derive(Debug, Default)]
pub(super) struct CountedRules {
    pub(super) rules: Vec<(RuleSetting, Arc<AtomicU64>)>,
    pub(super) default: Action,
    pub(super) default_frames: Arc<AtomicU64>,
}
