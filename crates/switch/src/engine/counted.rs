// SPDX-License-Identifier: Apache-2.0
//! Rules of the configuration with their frame counters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::config::kernel_filter::KernelFilterSetting;
use crate::config::rules::{RuleSetting, Rules, SetSetting};
use crate::config::steer::SteerSetting;
use quietwire_tables::filter::{Fallback, RuleFrames, RuleTable};
use quietwire_tables::port_mask::PortMask;

/// A kernel filter and its number of matched frames.
pub(super) type CountedFilter = (KernelFilterSetting, Arc<AtomicU64>);

/// Steering rules of ports whose frames the switch divides itself, and their numbers of frames.
#[derive(Clone, Debug, Default)]
pub(super) struct CountedSteering {
    pub(super) rules: Vec<(SteerSetting, Arc<AtomicU64>)>,
    /// Frames without match, by port.
    pub(super) unmatched: BTreeMap<String, Arc<AtomicU64>>,
}

/// A filter rule and its number of frames.
pub(super) type CountedRule = (Arc<RuleSetting>, Arc<RuleFrames>);

/// Filter rules and the number of frames each has decided on.
#[derive(Clone, Debug, Default)]
pub(super) struct CountedRules {
    pub(super) rules: Arc<Vec<CountedRule>>,
    pub(super) fallback: Fallback,
    /// The rules in the form of forwarding threads; `None` before the first plan.
    pub(super) compiled: Option<Arc<CompiledRules>>,
    /// The rules of the plan that the others here follow from.
    pub(super) asked: Arc<Rules>,
    /// Numbers of the ports that rules name; `None` for a port that does not exist.
    pub(super) numbers: BTreeMap<String, Option<u16>>,
    /// Places of rules of which each concerns other ports, or the same ports in another way. All other rules are like one of these.
    pub(super) distinct: Vec<usize>,
    /// Times of the last change.
    pub(super) times: RuleTimes,
}

/// Times of the last change of rules.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RuleTimes {
    /// Compilation, µs.
    pub(super) compile_us: Option<u64>,
    /// From the compiled rules until all forwarding threads have them, µs; `None` until then.
    pub(super) swap_us: Option<u64>,
}

impl RuleTimes {
    /// Creates the times of rules that are compiled and not in force yet.
    pub(super) fn compiled_in(elapsed: Duration) -> Self {
        Self {
            compile_us: Some(microseconds(elapsed)),
            swap_us: None,
        }
    }

    /// Notes that all forwarding threads have the rules. Later changes without new rules do not count.
    pub(super) fn note_swap(&mut self, elapsed: Duration) {
        self.swap_us.get_or_insert(microseconds(elapsed));
    }
}

fn microseconds(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

/// Numbers of the ports and of the bridge of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RulePlace {
    /// Ingress port, or the port that frames leave by.
    pub(super) port: Option<u16>,
    /// Several such ports, as [`quietwire_tables::filter::FurtherMatch::ports`].
    pub(super) ports: PortMask,
    /// Ingress port of frames that leave.
    pub(super) from: Option<u16>,
    /// Several such ports, as [`quietwire_tables::filter::FurtherMatch::from_ports`].
    pub(super) from_ports: PortMask,
    /// Bridge of the port, among [`CompiledRules::bridges`].
    pub(super) group: Option<u16>,
    /// Port that gets copies.
    pub(super) dup: Option<u16>,
    /// Port of the inspector.
    pub(super) inspect: Option<u16>,
}

/// Compiled filter rules, and the numbers in them.
#[derive(Clone, Debug)]
pub(super) struct CompiledRules {
    pub(super) table: Arc<RuleTable>,
    /// Numbers of the ports and bridges of each rule.
    pub(super) places: Arc<Vec<RulePlace>>,
    /// Names of the bridges of rules, sorted.
    pub(super) bridges: Vec<String>,
    /// Sets, by their numbers.
    pub(super) sets: Vec<Arc<SetSetting>>,
    /// Ports of each set of names of ports.
    pub(super) port_sets: BTreeMap<String, PortMask>,
}
