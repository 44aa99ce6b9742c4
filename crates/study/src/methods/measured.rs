// SPDX-License-Identifier: Apache-2.0
//! Methods of `quietwire measure`.

use super::address_caching::AddressCachingPlan;
use super::address_learning_rate::AddressLearningRatePlan;
use super::application::ApplicationPlan;
use super::back_to_back::BackToBackPlan;
use super::connections::{
    ConcurrentConnectionsPlan, ConnectionThroughputPlan, ConnectionsPerSecondPlan,
    TransactionLatencyPlan, TransactionsPerSecondPlan,
};
use super::forwarding_rate::ForwardingRatePlan;
use super::latency::LatencyProbe;
use super::latency_plan::LatencyPlanSection;
use super::loss_distribution::LossDistributionPlan;
use super::method::{MeasuredMethod, Offered};
use super::reset::ResetPlan;
use super::search::Search;
use super::soak::SoakPlan;
use super::sweep::Sweep;
use super::system_recovery::SystemRecoveryPlan;
use super::table::every_method;
use super::tenants::TenantsPlan;

macro_rules! measured {
    (
        $(#[$search_doc:meta])* $search:ident: $search_plan:ident,
        $($(#[$doc:meta])* $field:ident: $plan:ident => $kind:ident $name:literal $family:ident,)+
    ) => {
        const ALL: &[&[MeasuredMethod]] = &[
            <$search_plan as Offered>::MEASURED,
            $(<$plan as Offered>::MEASURED,)+
        ];
    };
}

every_method!(measured);

/// Returns all methods of `quietwire measure`.
pub fn measured_methods() -> impl Iterator<Item = &'static MeasuredMethod> {
    ALL.iter().copied().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_one_methods() {
        let names = || measured_methods().map(|it| it.name);
        let different: BTreeSet<_> = names().collect();
        assert_eq!(different.len(), names().count());
        assert!(different.contains("mlrsearch") && different.contains("loss-sweep"));
    }
}
