// SPDX-License-Identifier: Apache-2.0
//! Roles of CPUs: which forward, which serve, which control. A forwarding CPU does nothing else.

use serde::{Deserialize, Serialize};

use crate::CpuList;
use crate::inventory::Inventory;

/// Who gets which CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    /// CPUs that poll ports, and nothing else. At least one.
    pub forwarding: CpuList,
    /// CPUs of what may wait a little: netlink, timers, ageing. May be control CPUs, too.
    pub service: CpuList,
    /// CPUs that answer questions, and of the library's own threads. May be service CPUs, too.
    pub control: CpuList,
}

/// Why CPUs cannot have these roles.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RolesError {
    /// Nothing would forward.
    #[error("no CPU has the forwarding role; give it at least one of the CPUs {0}")]
    NoForwarding(CpuList),
    /// A forwarding CPU has another role.
    #[error(
        "CPU {cpus} is given both the forwarding role and the {role} role, and a forwarding CPU does nothing else; give the {role} role one of the CPUs {others}"
    )]
    Both {
        /// The CPUs with two roles.
        cpus: CpuList,
        /// The other role.
        role: &'static str,
        /// CPUs that could have it.
        others: CpuList,
    },
    /// A CPU is there and not running.
    #[error(
        "CPU {cpus} is given the {role} role and is offline; choose from the CPUs {online}, or bring it up with `echo 1 > /sys/devices/system/cpu/cpuN/online`"
    )]
    Offline {
        /// The CPUs.
        cpus: CpuList,
        /// Their role.
        role: &'static str,
        /// CPUs that are running.
        online: CpuList,
    },
    /// A CPU that the machine does not have.
    #[error(
        "CPU {cpus} is given the {role} role, and this machine does not have it; choose from the CPUs {online}"
    )]
    Absent {
        /// The CPUs.
        cpus: CpuList,
        /// Their role.
        role: &'static str,
        /// CPUs that are running.
        online: CpuList,
    },
    /// The machine does not say which CPUs it has.
    #[error(
        "the machine does not say which CPUs are online (/sys/devices/system/cpu/online); mount sysfs on /sys"
    )]
    Unknown,
}

impl Roles {
    /// All CPUs that have a role.
    #[must_use]
    pub fn all(&self) -> CpuList {
        self.forwarding.union(&self.service).union(&self.control)
    }

    /// Checks that the machine has these CPUs running and that forwarding CPUs do nothing else.
    ///
    /// # Errors
    /// [`RolesError`]: the CPUs, their roles, and what to do.
    pub fn validate(&self, machine: &Inventory) -> Result<(), RolesError> {
        let online = machine.cpus_online.as_ref().ok_or(RolesError::Unknown)?;
        // Without a list of those present, a CPU that is not online is not there.
        let present = machine.cpus_present.as_ref().unwrap_or(online);
        if self.forwarding.is_empty() {
            return Err(RolesError::NoForwarding(online.clone()));
        }
        let others = [("service", &self.service), ("control", &self.control)];
        for (role, cpus) in [("forwarding", &self.forwarding)].iter().chain(&others) {
            let down = cpus.difference(online);
            if down.is_empty() {
                continue;
            }
            let (online, absent) = (online.clone(), down.difference(present));
            return Err(if absent.is_empty() {
                RolesError::Offline {
                    cpus: down,
                    role,
                    online,
                }
            } else {
                RolesError::Absent {
                    cpus: absent,
                    role,
                    online,
                }
            });
        }
        for (role, cpus) in others {
            let both = cpus.intersection(&self.forwarding);
            if !both.is_empty() {
                return Err(RolesError::Both {
                    cpus: both,
                    role,
                    others: online.difference(&self.forwarding),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::CpuId;

    fn machine() -> Inventory {
        Inventory {
            cpus_online: Some("0-3,5".parse().unwrap()),
            cpus_present: Some("0-5".parse().unwrap()),
            ..Inventory::default()
        }
    }

    fn roles(forwarding: &str, service: &str, control: &str) -> Roles {
        Roles {
            forwarding: forwarding.parse().unwrap(),
            service: service.parse().unwrap(),
            control: control.parse().unwrap(),
        }
    }

    #[test]
    fn service_and_control_may_share_and_forwarding_may_not() {
        assert_eq!(roles("2-3,5", "0", "0").validate(&machine()), Ok(()));
        assert_eq!(roles("1", "", "").validate(&machine()), Ok(()));
        let error = roles("2,3", "0", "1-2").validate(&machine()).unwrap_err();
        let text = error.to_string();
        for part in ["CPU 2", "forwarding", "control", "0-1,5"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn cpus_that_are_not_running_are_named() {
        let offline = roles("1", "4", "0").validate(&machine()).unwrap_err();
        assert!(
            matches!(
                offline,
                RolesError::Offline {
                    role: "service",
                    ..
                }
            ),
            "{offline}"
        );
        let absent = roles("4,9", "0", "0").validate(&machine()).unwrap_err();
        let wanted = RolesError::Absent {
            cpus: "9".parse().unwrap(),
            role: "forwarding",
            online: "0-3,5".parse().unwrap(),
        };
        assert_eq!(absent, wanted);
        let none = roles("", "0", "0").validate(&machine()).unwrap_err();
        assert!(matches!(none, RolesError::NoForwarding(_)));
        assert_eq!(
            roles("1", "0", "0").validate(&Inventory::default()),
            Err(RolesError::Unknown)
        );
    }

    fn some_cpus() -> impl Strategy<Value = CpuList> {
        prop::collection::btree_set(0u32..7, 0..4)
            .prop_map(|cpus| cpus.into_iter().map(CpuId).collect())
    }

    proptest! {
        #[test]
        fn what_passes_forwards_on_cpus_of_its_own(
            forwarding in some_cpus(), service in some_cpus(), control in some_cpus(),
        ) {
            let online: CpuList = "0-3,5".parse().unwrap();
            let roles = Roles { forwarding, service, control };
            let sound = !roles.forwarding.is_empty()
                && roles.all().difference(&online).is_empty()
                && roles.forwarding.iter().all(|cpu| !roles.service.contains(cpu) && !roles.control.contains(cpu));
            prop_assert_eq!(roles.validate(&machine()).is_ok(), sound);
        }
    }
}
