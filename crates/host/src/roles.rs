// SPDX-License-Identifier: Apache-2.0
//! CPU roles of the switch: forwarding, service and control. A forwarding CPU has no other role.

use serde::{Deserialize, Serialize};

use crate::CpuList;
use crate::inventory::Inventory;

/// CPUs of each role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    /// CPUs that only poll ports. At least one.
    pub forwarding: CpuList,
    /// CPUs for work that may wait a little: netlink, timers, ageing. May overlap with control CPUs.
    pub service: CpuList,
    /// CPUs for control requests and for DPDK's own threads. May overlap with service CPUs.
    pub control: CpuList,
}

/// Errors in an assignment of roles.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RolesError {
    /// No CPU has the forwarding role.
    #[error("no CPU has the forwarding role (assign it at least one of the CPUs {0})")]
    NoForwarding(CpuList),
    /// A forwarding CPU has another role as well.
    #[error(
        "CPU {cpus} has both the forwarding role and the {role} role, but a forwarding CPU may have no other role (assign the {role} role one of the CPUs {others})"
    )]
    Both {
        /// The CPUs with two roles.
        cpus: CpuList,
        /// The other role.
        role: &'static str,
        /// CPUs that may have the other role.
        others: CpuList,
    },
    /// A CPU is offline.
    #[error(
        "CPU {cpus} has the {role} role but is offline (use one of the CPUs {online}, or bring it online with `echo 1 > /sys/devices/system/cpu/cpuN/online`)"
    )]
    Offline {
        /// The CPUs.
        cpus: CpuList,
        /// Their role.
        role: &'static str,
        /// Online CPUs.
        online: CpuList,
    },
    /// A CPU does not exist.
    #[error("CPU {cpus} has the {role} role but does not exist (use one of the CPUs {online})")]
    Absent {
        /// The CPUs.
        cpus: CpuList,
        /// Their role.
        role: &'static str,
        /// Online CPUs.
        online: CpuList,
    },
    /// The machine does not report its online CPUs.
    #[error(
        "cannot determine the online CPUs: /sys/devices/system/cpu/online is missing or unreadable (mount sysfs on /sys)"
    )]
    Unknown,
}

impl Roles {
    /// Returns all CPUs that have a role.
    #[must_use]
    pub fn all(&self) -> CpuList {
        self.forwarding.union(&self.service).union(&self.control)
    }

    /// Checks that all CPUs are online and that forwarding CPUs have no other role.
    ///
    /// # Errors
    /// [`RolesError`]: the CPUs, their roles and the remedy.
    pub fn validate(&self, machine: &Inventory) -> Result<(), RolesError> {
        let online = machine.cpus_online.as_ref().ok_or(RolesError::Unknown)?;
        // Without a list of present CPUs, a CPU that is not online does not exist.
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
        fn valid_roles_have_separate_online_forwarding_cpus(
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
