// SPDX-License-Identifier: Apache-2.0
//! Kernel filters in the form of forwarding threads, and their reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;
use super::counted::CountedFilter;
use crate::config::kernel_filter::KernelFilterSetting;
use crate::layer3::{Layer3, RoutedInterface};
use crate::report::KernelFilterReport;
use quietwire_tables::route::{FilterRule, KernelFilter};

impl Engine {
    /// Assigns a counter to each kernel filter of the plan. An unchanged filter keeps its counter.
    pub(super) fn count_filters(&mut self) {
        let former = std::mem::take(&mut self.kernel_filters);
        let counted = |rule: &KernelFilterSetting| {
            let same = former.iter().find(|(one, _)| one == rule);
            let count = same.map_or_else(Arc::default, |(_, count)| Arc::clone(count));
            (rule.clone(), count)
        };
        let rules = self.plan.layer3.kernel_filters.iter();
        self.kernel_filters = rules.map(counted).collect();
    }

    /// Returns the kernel filters for forwarding threads; `None` without filters.
    pub(super) fn kernel_filter(
        &self,
        layer3: &Layer3,
        known: &BTreeMap<u16, RoutedInterface>,
    ) -> Option<Arc<KernelFilter>> {
        if self.kernel_filters.is_empty() {
            return None;
        }
        let number = |name: &String| {
            let mut all = known.iter();
            all.find(|(_, one)| one.name == *name)
                .map(|(number, _)| *number)
        };
        let rule = |(setting, count): &CountedFilter| {
            let rule = FilterRule {
                interface: match &setting.interface {
                    Some(name) => Some(number(name)?),
                    None => None,
                },
                vrf: match &setting.vrf {
                    Some(name) => Some(layer3.vrf(name)?),
                    None => None,
                },
                packet: setting.packet,
            };
            Some((rule, Arc::clone(count)))
        };
        let rules = self.kernel_filters.iter().filter_map(rule);
        let taps = known.iter().filter(|(_, one)| one.kernel.is_some());
        let taps = taps.map(|(number, _)| *number);
        Some(Arc::new(KernelFilter::new(rules, taps)))
    }

    /// Returns the reports of kernel filters.
    pub(crate) fn kernel_filter_reports(&self) -> Vec<KernelFilterReport> {
        let report = |(rule, count): &CountedFilter| KernelFilterReport {
            name: rule.name.clone(),
            interface: rule.interface.clone(),
            vrf: rule.vrf.clone(),
            packet: rule.packet,
            frames: count.load(Ordering::Relaxed),
        };
        self.kernel_filters.iter().map(report).collect()
    }
}
