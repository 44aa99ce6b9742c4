// SPDX-License-Identifier: Apache-2.0
//! Parts of the state of connections that threads share: rings, owners, and shares of tables.

use std::sync::Arc;

use quietwire_tables::owner::Owners;
use quietwire_tables::share::Share;

use crate::config::Plan;

/// Rings of all threads.
#[derive(Debug, Default)]
pub(super) struct Wiring {
    /// Number of this set of rings, from 1 on. A thread that has another number lacks some of them.
    pub(super) number: u64,
    /// CPUs of the owners, by number.
    pub(super) owners: Vec<u32>,
}

/// Share of a thread.
#[derive(Debug, Default)]
pub(super) struct ThreadShare {
    /// Number of its rings in [`Wiring`].
    pub(super) wiring: u64,
    /// Owners of packets. `None` if the thread processes all packets that it receives.
    pub(super) owners: Option<Arc<Owners>>,
}

/// Returns the share of a CPU of a plan. `None` if the plan does not contain it.
pub(super) fn share_of(plan: &Plan, cpu: u32) -> Option<Share> {
    let number = plan.forwarding_cpus.iter().position(|one| one.0 == cpu)?;
    let of = u16::try_from(plan.forwarding_cpus.len()).ok()?;
    Share::new(u16::try_from(number).ok()?, of)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Settings;

    #[test]
    fn shares_are_those_of_the_cpus_of_the_plan_in_order() {
        let settings = "forwarding-cpus = \"1,3,5\"\npinning = \"none\"\n";
        let settings = Settings::parse(Path::new("switch.toml"), settings).unwrap();
        let plan = settings.plan(&"0-7".parse().unwrap()).unwrap();
        for (number, cpu) in (0..).zip([1, 3, 5]) {
            assert_eq!(share_of(&plan, cpu), Share::new(number, 3));
        }
        assert_eq!(share_of(&plan, 2), None);
    }
}
