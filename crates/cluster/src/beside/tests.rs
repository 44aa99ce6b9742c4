// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeMap;

use proptest::prelude::*;
use quietwire_host::inventory::Inventory;
use quietwire_host::machines::{self, Machine};
use quietwire_host::partition::{CpuRequest, PartitionRequest};
use quietwire_host::{CpuId, CpuList};

use super::*;
use crate::kubelet::{Claim, Configuration, CpuManagerState, MemoryManagerState, STATIC_MEMORY};

fn cpus(text: &str) -> CpuList {
    text.parse().unwrap()
}

/// A machine of eight cores with one thread each.
fn eight() -> Inventory {
    let machine = Machine {
        cores: 8,
        ..Machine::default()
    };
    machine.inventory()
}

/// kubelet with the policy `static` that keeps all containers off the reserved CPUs.
fn strict(reserved: &str) -> Kubelet {
    let options = BTreeMap::from([(STRICT.to_owned(), "true".to_owned())]);
    Kubelet {
        configuration: Configuration {
            cpu_manager_policy: STATIC.to_owned(),
            cpu_manager_options: options,
            reserved: cpus(reserved),
            ..Configuration::default()
        },
        ..Kubelet::default()
    }
}

fn forwarding(count: u32) -> PartitionRequest {
    let mut request = PartitionRequest::default();
    request.forwarding.cpus = Some(CpuRequest::Count(count));
    request
}

#[test]
fn a_plan_takes_reserved_cpus_only_and_leaves_one_to_the_host() {
    let kubelet = strict("0,5-7");
    let plan = plan_beside(&eight(), &forwarding(2), &kubelet, "edge").unwrap();
    let taken = taken(&plan);
    assert_eq!(taken.len(), 2);
    assert_eq!(taken.difference(&cpus("0,5-7")), CpuList::new());
    assert_eq!(plan.cpus(Role::Host).union(&taken), cpus("0-7"));
}

#[test]
fn settings_of_kubelet_that_let_containers_onto_the_plan_are_named() {
    let mut kubelet = strict("0");
    kubelet.configuration.cpu_manager_policy = "none".to_owned();
    kubelet.configuration.cpu_manager_options.clear();
    let refusal = plan_beside(&eight(), &forwarding(2), &kubelet, "edge").unwrap_err();
    let Refusal::Settings(settings) = &refusal else {
        panic!("{refusal}");
    };
    let keys: Vec<&str> = settings
        .iter()
        .map(|setting| setting.key.as_str())
        .collect();
    assert_eq!(
        keys,
        [
            "reservedSystemCPUs",
            "cpuManagerPolicy",
            "cpuManagerPolicyOptions.strict-cpu-reservation"
        ]
    );
    assert_eq!(settings[0].now, "'0'");
    assert!(
        refusal.to_string().contains("'static' (now 'none')"),
        "{refusal}"
    );
}

#[test]
fn an_overlap_is_refused_with_both_owners() {
    let mut kubelet = strict("0-3");
    kubelet.claims.push(Claim {
        owner: "container 'app' of pod 'default/fast'".to_owned(),
        cpus: cpus("1-2"),
    });
    let mut request = PartitionRequest::default();
    request.forwarding.cpus = Some(CpuRequest::These(cpus("2-3")));
    let refusal = plan_beside(&eight(), &request, &kubelet, "edge").unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "CPUs 2 are of group 'forwarding' of NodePartition 'edge' and of container 'app' of pod 'default/fast'"
    );
}

#[test]
fn a_kubelet_that_runs_with_an_earlier_configuration_is_found() {
    let mut kubelet = strict("0-3");
    let state = |policy: &str, shared: &str| {
        Some(CpuManagerState {
            policy: policy.to_owned(),
            shared: cpus(shared),
            exclusive: BTreeMap::new(),
        })
    };
    kubelet.cpu_state = state(STATIC, "4-7");
    plan_beside(&eight(), &forwarding(1), &kubelet, "edge").unwrap();
    for (policy, shared) in [(STATIC, "0-7"), ("none", "")] {
        kubelet.cpu_state = state(policy, shared);
        let refusal = plan_beside(&eight(), &forwarding(1), &kubelet, "edge").unwrap_err();
        assert!(
            refusal.to_string().contains("cpu_manager_state"),
            "{refusal}"
        );
    }
}

#[test]
fn huge_pages_that_the_memory_manager_has_not_recorded_are_named() {
    let mut kubelet = strict("0-3");
    let plan = plan_beside(&eight(), &forwarding(1), &kubelet, "edge").unwrap();
    let pool = plan.huge_pages[0].clone();
    let recorded = |policy: &str, kib: u64| {
        Some(MemoryManagerState {
            policy: policy.to_owned(),
            huge_pages: BTreeMap::from([((pool.node.unwrap_or(0), pool.page_kib), kib)]),
            ..MemoryManagerState::default()
        })
    };
    let needed = pool.pages * pool.page_kib;
    for (policy, kib) in [("None", 0), (STATIC_MEMORY, needed)] {
        kubelet.memory_state = recorded(policy, kib);
        plan_beside(&eight(), &forwarding(1), &kubelet, "edge").unwrap();
    }
    kubelet.memory_state = recorded(STATIC_MEMORY, needed - 1);
    let refusal = plan_beside(&eight(), &forwarding(1), &kubelet, "edge").unwrap_err();
    let text = refusal.to_string();
    for part in ["memory_manager_state", &format!("{needed} KiB in pages")] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_request_that_no_machine_meets_is_infeasible() {
    let refusal = plan_beside(&eight(), &forwarding(99), &strict("0-7"), "edge").unwrap_err();
    assert!(matches!(refusal, Refusal::Infeasible(_)), "{refusal}");
}

/// A kind of machine, reserved CPUs as bits, a number of forwarding CPUs, and CPUs of a container as bits.
fn cases() -> impl Strategy<Value = (usize, u64, u32, u64)> {
    (
        0..machines::all().len(),
        any::<u64>(),
        1..4u32,
        any::<u64>(),
    )
}

fn chosen(online: &CpuList, bits: u64) -> CpuList {
    let cpus = online.iter().enumerate();
    let is_set = |index: usize| bits.rotate_right(u32::try_from(index % 64).unwrap()) & 1 == 1;
    cpus.filter(|(index, _)| is_set(*index))
        .map(|(_, cpu)| cpu)
        .collect::<CpuList>()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A plan takes no CPU that a container may use, and the settings that a refusal names are enough for a plan.
    #[test]
    fn plans_keep_to_what_kubelet_leaves((kind, reserved, count, claimed) in cases()) {
        let machine = machines::all()[kind].inventory();
        let online = machine.cpus_online.clone().unwrap();
        let mut kubelet = strict("");
        kubelet.configuration.reserved = chosen(&online, reserved);
        let of_pod = chosen(&online, claimed).difference(&kubelet.configuration.reserved);
        kubelet.claims.push(Claim { owner: "pod".to_owned(), cpus: of_pod.clone() });
        for attempt in 0..2 {
            match plan_beside(&machine, &forwarding(count), &kubelet, "edge") {
                Ok(plan) => {
                    let taken = taken(&plan);
                    prop_assert!(taken.difference(&kubelet.configuration.reserved).is_empty());
                    prop_assert!(taken.intersection(&of_pod).is_empty());
                    prop_assert!(!kubelet.configuration.reserved.difference(&taken).is_empty());
                    break;
                }
                Err(Refusal::Settings(settings)) => {
                    prop_assert_eq!(attempt, 0, "the named settings are not enough: {:?}", settings);
                    prop_assert_eq!(settings.len(), 1);
                    let wanted = settings[0].wanted.trim_matches('\'');
                    kubelet.configuration.reserved = wanted.parse().unwrap();
                    kubelet.claims.clear();
                }
                Err(Refusal::Overlap(overlaps)) => {
                    prop_assert!(overlaps.iter().all(|overlap| !overlap.cpus.intersection(&of_pod).is_empty()));
                    break;
                }
                // Some kinds have too few cores.
                Err(Refusal::Infeasible(text)) => {
                    prop_assert!(plan_alone(&machine, count).is_err(), "{}", text);
                    break;
                }
            }
        }
    }
}

fn plan_alone(machine: &Inventory, count: u32) -> Result<Plan, String> {
    plan(machine, &forwarding(count)).map_err(|error| error.to_string())
}

#[test]
fn bits_choose_cpus() {
    let online: CpuList = [0, 2, 5].map(CpuId).into_iter().collect();
    assert_eq!(chosen(&online, 0b101), cpus("0,5"));
}
