// SPDX-License-Identifier: Apache-2.0
//! Table of all methods.

/// Passes the table of all methods to a macro: the section of a study file, its type, the kind of its steps with its name, and the kind
/// of their elements. Steps run in this order; the step that replaces the device comes last. The search is separate because it has a step
/// for each goal.
///
/// A new method requires a line here, and a module declaration in `methods.rs`.
macro_rules! every_method {
    ($then:ident) => {
        $then! {
            /// The search for the throughput.
            search: Search,
            /// Tenants, added until the loss goal breaks.
            tenants: TenantsPlan => Tenants "tenants" Trials,
            /// The frame loss rate sweep (RFC 2544, section 26.3).
            sweep: Sweep => Sweep "loss sweep" Trials,
            /// Trials at a low load, for round trips.
            latency: LatencyProbe => Latency "latency" Trials,
            /// Many trials at each of a few rates.
            loss_distribution: LossDistributionPlan => LossDistribution "loss distribution" Trials,
            /// Forwarding rate at the maximum offered load (RFC 2889).
            forwarding_rate: ForwardingRatePlan => ForwardingRate "forwarding rate" Trials,
            /// Latency at the rates that the search found.
            latency_plan: LatencyPlanSection => LatencyPlan "latency plan" Trials,
            /// Load at which a tiny share of the frames is lost.
            soak: SoakPlan => Soak "soak" Trials,
            /// The longest burst without loss (RFC 9004).
            back_to_back: BackToBackPlan => BackToBack "back-to-back" Procedure,
            /// Recovery time after an overload (RFC 2544, section 26.5).
            system_recovery: SystemRecoveryPlan => SystemRecovery "system recovery" Procedure,
            /// Address caching capacity (RFC 2889, section 5.7).
            address_caching: AddressCachingPlan => AddressCaching "address caching" Procedure,
            /// Address learning rate (RFC 2889, section 5.8).
            address_learning_rate: AddressLearningRatePlan => AddressLearningRate "address learning rate" Procedure,
            /// Highest rate of connections (RFC 9411, section 7.2).
            connections_per_second: ConnectionsPerSecondPlan => ConnectionsPerSecond "connections per second" Procedure,
            /// Largest number of open connections (RFC 9411, section 7.5).
            concurrent_connections: ConcurrentConnectionsPlan => ConcurrentConnections "concurrent connections" Procedure,
            /// Highest rate of transactions on open connections.
            transactions_per_second: TransactionsPerSecondPlan => TransactionsPerSecond "transactions per second" Procedure,
            /// Throughput of established connections (RFC 9411, sections 7.1 and 7.3).
            connection_throughput: ConnectionThroughputPlan => ConnectionThroughput "connection throughput" Procedure,
            /// Latency of transactions (RFC 9411, section 7.4).
            transaction_latency: TransactionLatencyPlan => TransactionLatency "transaction latency" Procedure,
            /// Outage during a restart (RFC 6201).
            reset: ResetPlan => Reset "reset" Procedure,
            /// Application measurements through the device.
            application: ApplicationPlan => Application "applications" Application,
        }
    };
}

pub(crate) use every_method;
