// SPDX-License-Identifier: Apache-2.0
//! CPUs of the roles of threads: those of the configuration, and defaults.

use quietwire_host::{CpuId, CpuList};

use super::settings::{Pinning, Settings};
use crate::error::SwitchError;

/// CPUs of forwarding, service and control threads.
#[derive(Debug)]
pub(super) struct RoleCpus {
    pub(super) forwarding: CpuList,
    pub(super) service: CpuList,
    pub(super) control: CpuList,
}

impl RoleCpus {
    /// Returns the configured CPUs, and the default of each role without any. `online` is the list of online CPUs.
    ///
    /// # Errors
    /// [`SwitchError::Config`] for CPUs that cannot have a role, [`SwitchError::MissingPrerequisite`] if none is left for a role.
    pub(super) fn choose(
        settings: &Settings,
        online: &CpuList,
        pinning: Pinning,
    ) -> Result<Self, SwitchError> {
        // CPUs assigned explicitly to one role are no default for another role.
        let spoken_for = [&settings.service_cpus, &settings.control_cpus]
            .into_iter()
            .flatten()
            .fold(CpuList::new(), |all, cpus| all.union(cpus));
        let highest = || {
            let free = online.difference(&spoken_for);
            let highest: Option<CpuId> = free.iter().next_back().or(online.iter().next_back());
            highest.into_iter().collect::<CpuList>()
        };
        let forwarding = settings.forwarding_cpus.clone().unwrap_or_else(highest);
        let rest = online.difference(&forwarding);
        let rest = if rest.is_empty() && pinning == Pinning::None {
            online.clone()
        } else {
            rest
        };
        let cpus = Self {
            service: settings.service_cpus.clone().unwrap_or(rest.clone()),
            control: settings.control_cpus.clone().unwrap_or(rest),
            forwarding,
        };
        cpus.check(settings, online, pinning)?;
        Ok(cpus)
    }

    fn check(
        &self,
        settings: &Settings,
        online: &CpuList,
        pinning: Pinning,
    ) -> Result<(), SwitchError> {
        let wrong = |role: &str, what: String| {
            Err(SwitchError::Config {
                location: format!("{role}-cpus"),
                what,
            })
        };
        let roles = [
            ("forwarding", &self.forwarding, &settings.forwarding_cpus),
            ("service", &self.service, &settings.service_cpus),
            ("control", &self.control, &settings.control_cpus),
        ];
        for (role, cpus, given) in roles {
            let absent = cpus.difference(online);
            if !absent.is_empty() {
                return wrong(
                    role,
                    format!("CPU {absent} is not online (online CPUs: {online})"),
                );
            }
            if cpus.is_empty() && given.is_some() {
                return wrong(
                    role,
                    format!("the CPU list is empty (online CPUs: {online})"),
                );
            }
            if cpus.is_empty() {
                return Err(SwitchError::MissingPrerequisite(format!(
                    "no CPU is left for {role} threads: the forwarding CPUs are {}, the online CPUs {online} (use fewer --forwarding-cpus, or --pinning none)",
                    self.forwarding
                )));
            }
        }
        if pinning == Pinning::Roles {
            for (role, cpus, _) in roles.iter().skip(1) {
                let both = cpus.intersection(&self.forwarding);
                if !both.is_empty() {
                    return wrong(
                        role,
                        format!(
                            "CPU {both} is a forwarding CPU, which is reserved for forwarding (choose from {})",
                            online.difference(&self.forwarding)
                        ),
                    );
                }
            }
        }
        Ok(())
    }
}
