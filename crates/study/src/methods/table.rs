// SPDX-License-Identifier: Apache-2.0
//! The table of all methods.

/// Hands the table of all methods to a macro: the section of a study file, its type, the kind of its steps with its name, and
/// what these are made of. Steps
/// are made in this order; the one after which the device is another comes last. The search is apart, since it has a step for each goal.
///
/// A new method is a line here, and a module that this folder's `mod.rs` declares.
macro_rules! every_method {
    ($then:ident) => {
        $then! {
            /// The search for the throughput.
            search: Search,
            /// Tenants added until the loss goal breaks.
            tenants: TenantsPlan => Tenants "tenants" Trials,
            /// The frame loss rate sweep (RFC 2544, section 26.3).
            sweep: Sweep => Sweep "loss sweep" Trials,
            /// Trials at a low load, for the round trip.
            latency: LatencyProbe => Latency "latency" Trials,
            /// Many trials at each of a few rates.
            loss_distribution: LossDistributionPlan => LossDistribution "loss distribution" Trials,
            /// Forwarding rate at the maximum offered load (RFC 2889).
            forwarding_rate: ForwardingRatePlan => ForwardingRate "forwarding rate" Trials,
            /// Latency at the rates that the search found.
            latency_plan: LatencyPlanSection => LatencyPlan "latency plan" Trials,
            /// The load at which a tiny part is lost.
            soak: SoakPlan => Soak "soak" Trials,
            /// The longest burst without loss (RFC 9004).
            back_to_back: BackToBackPlan => BackToBack "back-to-back" Procedure,
            /// How long frames are lost after an overload (RFC 2544, section 26.5).
            system_recovery: SystemRecoveryPlan => SystemRecovery "system recovery" Procedure,
            /// How many addresses the device keeps (RFC 2889, section 5.7).
            address_caching: AddressCachingPlan => AddressCaching "address caching" Procedure,
            /// How fast the device learns addresses (RFC 2889, section 5.8).
            address_learning_rate: AddressLearningRatePlan => AddressLearningRate "address learning rate" Procedure,
            /// How long nothing is forwarded when the device is restarted (RFC 6201).
            reset: ResetPlan => Reset "reset" Procedure,
            /// What applications see of the device.
            application: ApplicationPlan => Application "applications" Application,
        }
    };
}

pub(crate) use every_method;
