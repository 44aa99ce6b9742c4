// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::derive;
use super::super::request::{
    DataPlaneRequest, ForwardingRequest, GuestRequest, HostRequest, NeighbourRequest, NicRequest,
    SiblingPolicy,
};
use super::*;
use crate::machines::{self, Controller, Machine, NodeCpus, Numbering, Priority, Resctrl};
use quietwire_base::Idle;

fn inventory(machine: &Machine) -> Inventory {
    machine.inventory()
}

fn request(text: &str) -> PartitionRequest {
    PartitionRequest::parse(text).unwrap()
}

fn cpus(text: &str) -> CpuList {
    text.parse().unwrap()
}

/// Checks the invariants of every plan.
pub(crate) fn check(machine: &Inventory, plan: &Plan) {
    let online = machine.cpus_online.clone().unwrap();
    let mut observed = CpuList::new();
    let mut names = BTreeSet::new();
    for group in &plan.groups {
        assert!(names.insert(&group.name), "{} twice", group.name);
        assert!(!group.cpus.is_empty());
        assert!(
            observed.intersection(&group.cpus).is_empty(),
            "a CPU of {} has two roles",
            group.name
        );
        observed = observed.union(&group.cpus);
    }
    assert_eq!(observed, online, "every CPU has a role");
    assert!(!plan.cpus(Role::Host).is_empty() && !plan.cpus(Role::Forwarding).is_empty());
    // The other threads of a forwarding core forward or stay idle.
    for cpu in plan.cpus(Role::Forwarding).iter() {
        let siblings = machine
            .cpu(cpu)
            .and_then(|place| place.siblings.clone())
            .unwrap_or_default();
        for sibling in siblings.intersection(&online).iter() {
            let role = plan.group_of(sibling).unwrap().role;
            assert!(
                matches!(role, Role::Forwarding | Role::Idle),
                "CPU {sibling} beside {cpu} is {role:?}"
            );
        }
    }
    assert!(plan.housekeeping.intersection(&plan.isolated()).is_empty());
    check_classes(machine, plan);
    for nic in &plan.nics {
        assert!(!nic.queues.is_empty());
        for queue in &nic.queues {
            assert!(plan.cpus(Role::Forwarding).contains(queue.cpu));
            let node = machine.cpu(queue.cpu).and_then(|place| place.node);
            assert!(
                nic.node.is_none()
                    || node == nic.node
                    || !plan
                        .group("forwarding")
                        .unwrap()
                        .nodes
                        .contains(&nic.node.unwrap())
            );
        }
    }
    for pool in &plan.huge_pages {
        let node = machine
            .nodes
            .iter()
            .find(|node| Some(node.node) == pool.node);
        let memory_mib = node.map_or(machine.memory_mib, |node| node.memory_mib);
        assert!(pool.pages * pool.page_kib / 1024 < memory_mib.unwrap());
    }
}

/// Checks that masks are contiguous, within the cache, wide enough, and disjoint if both classes have CPUs.
fn check_classes(machine: &Inventory, plan: &Plan) {
    if plan.classes.is_empty() {
        return;
    }
    assert!(plan.classes.len() as u32 <= machine.rdt.classes_max().unwrap());
    assert!(plan.classes[0].is_default);
    let mut in_classes = CpuList::new();
    for class in &plan.classes {
        assert!(in_classes.intersection(&class.cpus).is_empty());
        in_classes = in_classes.union(&class.cpus);
        for limit in &class.bandwidth {
            let allocation = machine.rdt.bandwidth.as_ref().unwrap();
            assert!(limit.limit >= allocation.min && limit.limit <= allocation.unlimited);
            assert_eq!(limit.limit % allocation.step, 0);
        }
        for mask in &class.masks {
            let cache = machine.rdt.cache(mask.level).unwrap();
            let shifted = mask.mask >> mask.mask.trailing_zeros();
            assert!(shifted & (shifted + 1) == 0, "{:x} has holes", mask.mask);
            assert!(
                mask.mask & !cache.mask == 0 && mask.mask.count_ones() >= cache.ways_min,
                "{:x}",
                mask.mask
            );
            // The kernel does not report a cache whose CPUs are all offline.
            let mut caches = machine.caches.iter();
            let known = caches.find(|it| it.level == mask.level && it.id == Some(mask.domain));
            let here = known.map_or(CpuList::new(), |known| known.cpus.clone());
            for other in plan.classes.iter().filter(|other| other.name != class.name) {
                let both = [class, other]
                    .iter()
                    .all(|class| !class.cpus.intersection(&here).is_empty());
                let theirs = other
                    .masks
                    .iter()
                    .find(|theirs| (theirs.level, theirs.domain) == (mask.level, mask.domain))
                    .unwrap();
                assert!(
                    !both || theirs.mask & mask.mask == 0,
                    "{} and {} overlap in {}",
                    class.name,
                    other.name,
                    mask.domain
                );
            }
        }
    }
}

#[test]
fn suggested_requests_are_feasible_on_every_kind_of_machine() {
    for machine in machines::all() {
        let inventory = inventory(&machine);
        let plan = plan(&inventory, &derive(&inventory))
            .unwrap_or_else(|error| panic!("{}: {error}", machine.name));
        check(&inventory, &plan);
        assert!(!plan.reasons.is_empty());
    }
}

#[test]
fn unknown_nodes_are_reported_to_be_unknown() {
    let text = "[forwarding]\ncpus = 2\n[[guest]]\nname = \"a\"\ncpus = 4\nmemory-mib = 2048\n[[nic]]\npci = \"17:00.0\"\n";
    let hidden = Machine {
        node_cpus: NodeCpus::Hidden,
        ..machines::two_packages_with_clusters()
    };
    let machine = inventory(&hidden);
    let plan = plan(&machine, &request(text)).unwrap_or_else(|error| panic!("{error}"));
    check(&machine, &plan);
    for group in &plan.groups {
        assert!(group.nodes.is_empty(), "{group:?}");
    }
    let pools: Vec<Option<u32>> = plan.huge_pages.iter().map(|pool| pool.node).collect();
    assert_eq!(pools, [None]);
    let reasons: Vec<String> = plan
        .reasons
        .iter()
        .map(|reason| format!("{}: {}", reason.subject, reason.text))
        .collect();
    let reasons = reasons.join("\n");
    assert!(
        reasons.contains("numa: the NUMA nodes of CPUs 0-"),
        "{reasons}"
    );
    // The node of the card is known.
    let others = reasons.lines().filter(|line| !line.starts_with("0000:"));
    for line in others {
        assert!(!line.contains("node 0"), "{line}");
    }
    let named = request("[forwarding]\nnode = 1\n");
    let infeasible = super::plan(&machine, &named).unwrap_err();
    assert!(
        infeasible
            .to_string()
            .contains("nodes of this machine's CPUs are unknown"),
        "{infeasible}"
    );
    assert!(infeasible.nearest.is_some());
}

#[test]
fn masks_of_nodes_make_the_same_plan_as_lists() {
    for listed in machines::all() {
        let masked = Machine {
            node_cpus: NodeCpus::Mask,
            ..listed.clone()
        };
        assert_eq!(inventory(&masked), inventory(&listed), "{}", listed.name);
    }
}

#[test]
fn forwarding_is_where_the_controller_is_and_its_siblings_idle() {
    let inventory = inventory(&machines::two_packages_with_clusters());
    let text = "[forwarding]\ncpus = 3\n[[nic]]\npci = \"65:00.0\"\nqueues = 3\nfunctions = 4\n";
    let plan = plan(&inventory, &request(text)).unwrap();
    check(&inventory, &plan);
    assert_eq!(plan.cpus(Role::Forwarding), cpus("9-11"));
    assert_eq!(plan.cpus(Role::Idle), cpus("41-43"));
    let polled: Vec<u32> = plan.nics[0]
        .queues
        .iter()
        .map(|queue| queue.cpu.0)
        .collect();
    assert_eq!(polled, [9, 10, 11]);
    assert_eq!(plan.nics[0].functions, Some(4));
    assert_eq!(plan.huge_pages[0].node, Some(1));
    assert!(
        plan.command_line()
            .contains("isolcpus=managed_irq,domain,9-11,41-43 "),
        "{}",
        plan.command_line()
    );
    assert!(plan.command_line().contains("intel_iommu=on iommu=pt"));
    // Devices write into the high ways, which forwarding has on its own package only.
    let class = plan
        .classes
        .iter()
        .find(|class| class.name == "forwarding")
        .unwrap();
    assert!(class.masks[0].mask & 0x600 == 0x600 && class.masks[1].mask == 0x7ff);
}

#[test]
fn fast_cores_forward() {
    let inventory = inventory(&machines::priority_cores());
    let plan = plan(
        &inventory,
        &request("[forwarding]\ncpus = 6\n[[nic]]\npci = \"0000:3b:00.0\"\n"),
    )
    .unwrap();
    check(&inventory, &plan);
    assert_eq!(plan.cpus(Role::Forwarding), cpus("1,4,7,10,13,16"));
    let fast = plan
        .frequencies
        .iter()
        .find(|setting| setting.is_high_priority && setting.cpus.contains(CpuId(4)))
        .unwrap();
    assert_eq!(
        (fast.min_khz, fast.max_khz),
        (Some(2_700_000), Some(2_700_000))
    );
    assert_eq!(fast.governor.as_deref(), Some("performance"));
    assert!(!plan.command_line().contains("intel_pstate"));
}

/// Tests the kernel parameters of each vendor, and those that depend on the request.
#[test]
fn kernel_parameters_follow_the_machine_and_the_request() {
    const ISOLATION: [&str; 6] = [
        "isolcpus=managed_irq,domain,",
        "nohz_full=",
        "rcu_nocbs=",
        "irqaffinity=",
        "skew_tick=1",
        "nosoftlockup",
    ];
    const REQUEST: &str = "[forwarding]\ncpus = 1\n[machine]\niommu = true\n";
    let planned = |machine: &Machine, text: &str| {
        let plan = plan(&inventory(machine), &request(text)).unwrap();
        let large = plan.huge_pages.iter().any(|pool| pool.page_kib == 1 << 20);
        let line = plan.command_line();
        assert_eq!(line.contains("default_hugepagesz=1G"), large, "{line}");
        line
    };
    for (machine, wanted, others) in [
        (
            machines::two_packages_with_clusters(),
            &["intel_iommu=on", "iommu=pt", "intel_pstate=passive"] as &[&str],
            &["iommu.passthrough"] as &[&str],
        ),
        (
            machines::many_caches(),
            &["iommu=pt"],
            &["intel_iommu", "intel_pstate", "iommu.passthrough"],
        ),
        (
            machines::arm(),
            &["iommu.passthrough=1"],
            &["iommu=", "intel_pstate"],
        ),
        (machines::virtual_machine(), &[], &["iommu"]),
    ] {
        let line = planned(&machine, REQUEST);
        for part in wanted.iter().chain(&ISOLATION) {
            assert!(line.contains(part), "{}: no '{part}': {line}", machine.name);
        }
        for part in others {
            assert!(!line.contains(part), "{}: '{part}': {line}", machine.name);
        }
        let line = planned(&machine, &format!("{REQUEST}boot-isolation = false\n"));
        for part in ISOLATION {
            assert!(!line.contains(part), "{}: '{part}': {line}", machine.name);
        }
    }
}

#[test]
fn guests_and_neighbours_are_kept_apart() {
    let inventory = inventory(&machines::many_caches());
    let text = r#"
        [control]
        [service]
        [forwarding]
        cpus = 4
        cache-percent = 50
        siblings = "forward"
        [[guest]]
        name = "firewall"
        cpus = 8
        memory-mib = 8192
        [[neighbour]]
        name = "batch"
        cpus = 16
        bandwidth-percent = 25
        [[nic]]
        pci = "0000:21:00.0"
    "#;
    let plan = plan(&inventory, &request(text)).unwrap();
    check(&inventory, &plan);
    let guest = plan.group("firewall").unwrap();
    assert_eq!(
        (guest.nodes.clone(), guest.cpus.len(), guest.memory_mib),
        (vec![1], 8, 8192)
    );
    let forwarding = plan.group("forwarding").unwrap();
    assert_eq!(forwarding.cpus.len(), 4);
    assert!(plan.cpus(Role::Idle).is_empty());
    let node = plan
        .huge_pages
        .iter()
        .find(|pool| pool.node == Some(1))
        .unwrap();
    assert_eq!(
        node.pages * node.page_kib / 1024,
        node.data_plane_mib + 8192
    );
    let batch = plan
        .classes
        .iter()
        .find(|class| class.name == "batch")
        .unwrap();
    assert!(batch.bandwidth.iter().all(|limit| limit.limit == 512));
    // Neighbours are not on the node of the forwarding CPUs.
    assert!(!plan.group("batch").unwrap().nodes.contains(&1));
}

#[test]
fn strong_cores_forward_on_a_hybrid_machine() {
    let inventory = inventory(&machines::hybrid());
    let plan = plan(&inventory, &request("[forwarding]\ncpus = 2\n")).unwrap();
    check(&inventory, &plan);
    assert_eq!(plan.cpus(Role::Forwarding), cpus("2,4"));
    assert_eq!(plan.cpus(Role::Idle), cpus("3,5"));
}

/// Tests every conflict and its nearest plan.
#[test]
fn infeasible_requests_are_reported_with_the_nearest_plan() {
    let machine = inventory(&machines::two_packages_with_clusters());
    for (text, parts) in [
        (
            "[forwarding]\ncpus = \"9,41\"\n[host]\ncpus = \"0,9\"\n",
            &["CPU 9 is also requested for forwarding"][..],
        ),
        (
            "[forwarding]\ncpus = \"9\"\n[[neighbour]]\nname = \"n\"\ncpus = \"41-42\"\n",
            &["CPU 41", "same core as forwarding CPU 9"],
        ),
        (
            "[forwarding]\ncpus = 9\n[[nic]]\npci = \"0000:65:00.0\"\n",
            &["9 CPUs are requested", "8 cores", "node 1", "0000:65:00.0"],
        ),
        (
            "[forwarding]\ncpus = \"20\"\n[[nic]]\npci = \"0000:17:00.0\"\n",
            &["node 0", "0000:17:00.0"],
        ),
        (
            "[forwarding]\ncpus = 1\n[[nic]]\npci = \"0000:17:00.0\"\n[[nic]]\npci = \"0000:65:00.0\"\n",
            &["nodes 0, 1", "cross"],
        ),
        (
            "[forwarding]\ncpus = \"0-63\"\n",
            &["leaves no CPU for the host"],
        ),
        (
            "[forwarding]\ncpus = \"64\"\n",
            &["CPU 64 does not exist", "0-63"],
        ),
        (
            "[host]\ncpus = 64\n",
            &["no whole core is free", "host has the CPUs 0-63"],
        ),
        (
            "[[nic]]\npci = \"0000:99:00.0\"\n",
            &["no such network card", "0000:17:00.0"],
        ),
        (
            "[[nic]]\npci = \"0000:17:00.0\"\nfunctions = 100\n",
            &["100 virtual functions", "64"],
        ),
        (
            "[[guest]]\nname = \"big\"\ncpus = 4\nmemory-mib = 900000\n",
            &["900000 MiB"],
        ),
        (
            "[[guest]]\nname = \"big\"\ncpus = 100\n",
            &["100 CPUs are requested", "60"],
        ),
        (
            "[[guest]]\nname = \"../x\"\ncpus = 1\n",
            &["'../x' is not a valid name"],
        ),
        (
            "[[guest]]\nname = \"host\"\ncpus = 1\n",
            &["'host' is already in use"],
        ),
        ("[forwarding]\nnode = 7\n", &["node 7 has no CPUs"]),
        (
            "[forwarding]\ncache-percent = 90\n[host]\ncache-percent = 40\n",
            &["forwarding 90", "11 ways"],
        ),
        (
            "[machine]\nhuge-page-kib = 4\n",
            &["4 KiB", "2048, 1048576"],
        ),
        ("[machine]\ngovernor = \"warp\"\n", &["warp"]),
        (
            "[forwarding]\nmemory-mib = 90000\n",
            &["90112 MiB of huge pages"],
        ),
        ("[forwarding]\ncpus = 0\n", &["0 CPUs are requested"]),
    ] {
        let requested = request(text);
        let error = plan(&machine, &requested).expect_err(text);
        let message = error.to_string();
        for part in parts {
            assert!(message.contains(part), "{text}: {message}");
        }
        let (near, found) = error
            .nearest
            .unwrap_or_else(|| panic!("{text}: no nearest plan: {message}"));
        assert_eq!(plan(&machine, &near), Ok(found.clone()), "{text}");
        check(&machine, &found);
    }
}

#[test]
fn shares_of_what_cannot_be_shared_are_conflicts() {
    let machine = inventory(&machines::virtual_machine());
    let error = plan(
        &machine,
        &request("[forwarding]\ncache-percent = 50\nbandwidth-percent = 50\n"),
    )
    .unwrap_err();
    assert_eq!(error.conflicts.len(), 2, "{error}");
    assert!(error.nearest.is_some());
}

#[test]
fn rings_that_no_data_plane_takes_are_conflicts() {
    let machine = inventory(&machines::virtual_machine());
    for size in [0, 16, 1000, 32768] {
        let text = format!("[forwarding]\nrx-ring-size = {size}\ntx-ring-size = 32\n");
        let error = plan(&machine, &request(&text)).unwrap_err();
        assert_eq!(error.conflicts.len(), 1, "{error}");
        assert!(error.conflicts[0].text.contains("power of two"), "{error}");
    }
}

#[test]
fn one_core_is_not_enough() {
    let machine = inventory(&Machine {
        cores: 1,
        threads: 2,
        ..Machine::default()
    });
    let error = plan(&machine, &PartitionRequest::default()).unwrap_err();
    assert_eq!(error.nearest, None);
    assert!(error.to_string().contains("no whole core"), "{error}");
    let single = inventory(&Machine {
        cores: 1,
        ..Machine::default()
    });
    assert!(
        plan(&single, &PartitionRequest::default())
            .unwrap_err()
            .to_string()
            .contains("only 1 is online")
    );
}

#[test]
fn two_cores_are_enough() {
    let machine = inventory(&machines::virtual_machine());
    let plan = plan(&machine, &PartitionRequest::default()).unwrap();
    assert_eq!(
        (plan.cpus(Role::Host), plan.cpus(Role::Forwarding)),
        (cpus("0"), cpus("1"))
    );
    assert!(plan.classes.is_empty() && plan.frequencies.is_empty());
    assert_eq!(plan.huge_pages[0].page_kib, 2048);
}

pub(crate) fn some_machine() -> impl Strategy<Value = Machine> {
    let shape = (1u32..3, 1u32..3, 1u32..7, 1u32..3, 0u32..3, 1u32..3);
    let rest = (
        any::<bool>(),
        prop::collection::btree_set(1u32..20, 0..3),
        prop::option::of((1u32..12, 1u32..6, 1u32..3, any::<bool>(), any::<bool>())),
        any::<bool>(),
        0usize..3,
        prop_oneof![
            Just(NodeCpus::List),
            Just(NodeCpus::Mask),
            Just(NodeCpus::Hidden)
        ],
    );
    (shape, rest).prop_map(
        |(
            (packages, nodes, cores, threads, efficiency_cores, caches),
            (together, offline, resctrl, has_priority, controllers, node_cpus),
        )| {
            let mut machine = Machine {
                packages,
                nodes_per_package: nodes,
                cores,
                threads,
                efficiency_cores,
                caches,
                node_cpus,
                numbering: if together {
                    Numbering::ThreadsTogether
                } else {
                    Numbering::ThreadsLast
                },
                resctrl: resctrl.map(|(ways, classes, ways_min, code_and_data, limits)| Resctrl {
                    ways: ways.max(ways_min),
                    classes,
                    ways_min,
                    shared_with_devices: 1,
                    code_and_data,
                    bandwidth: limits.then_some((100, 10)),
                }),
                priority: has_priority.then(|| Priority {
                    cores: vec![1],
                    high_khz: 2_700_000,
                    low_khz: 2_100_000,
                }),
                controllers: ["0000:01:00.0", "0000:02:00.0"]
                    .into_iter()
                    .take(controllers)
                    .enumerate()
                    .map(|(at, address)| Controller {
                        address,
                        node: i32::try_from(at).unwrap()
                            * i32::try_from(packages * nodes - 1).unwrap(),
                        driver: "ice",
                        interface: None,
                        functions_max: 8,
                        functions: 0,
                    })
                    .collect(),
                ..Machine::default()
            };
            let last = machine.cpus();
            machine.offline = offline
                .into_iter()
                .filter(|cpu| *cpu < last)
                .map(CpuId)
                .collect();
            machine
        },
    )
}

fn some_cpus() -> impl Strategy<Value = Option<CpuRequest>> {
    prop_oneof![
        3 => Just(None),
        4 => (0u32..9).prop_map(|count| Some(CpuRequest::Count(count))),
        3 => prop::collection::btree_set(0u32..26, 0..5).prop_map(|cpus| Some(CpuRequest::These(cpus.into_iter().map(CpuId).collect()))),
    ]
}

fn some_percent() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![3 => Just(None), 1 => (0u8..120).prop_map(Some)]
}

pub(crate) fn some_request() -> impl Strategy<Value = PartitionRequest> {
    let host = || {
        (some_cpus(), some_percent(), some_percent()).prop_map(
            |(cpus, cache_percent, bandwidth_percent)| HostRequest {
                cpus,
                cache_percent,
                bandwidth_percent,
            },
        )
    };
    let forwarding = (
        some_cpus(),
        any::<bool>(),
        prop::option::of(0u32..4),
        some_percent(),
        prop::option::of(0u64..60_000),
        0usize..8,
    );
    let guest = || {
        (
            some_cpus(),
            0u64..40_000,
            prop::option::of(0u32..4),
            some_percent(),
            some_percent(),
        )
    };
    let guests = || prop::collection::vec(guest(), 0..3);
    let nics = prop::collection::vec(
        (
            0u8..4,
            prop::option::of(0u16..5),
            prop::option::of(0u32..12),
        ),
        0..3,
    );
    (
        host(),
        prop::option::of(host()),
        prop::option::of(host()),
        forwarding,
        guests(),
        guests(),
        nics,
    )
        .prop_map(
            |(host, control, service, forwarding, guests, neighbours, nics)| {
                let (cpus, both, node, cache_percent, memory_mib, kind) = forwarding;
                PartitionRequest {
                    host,
                    control,
                    service,
                    forwarding: ForwardingRequest {
                        cpus,
                        siblings: if both {
                            SiblingPolicy::Forward
                        } else {
                            SiblingPolicy::Idle
                        },
                        node,
                        cache_percent,
                        memory_mib,
                        idle: Idle::ALL[kind % 4],
                        data_plane: if kind < 4 {
                            DataPlaneRequest::Ovs
                        } else {
                            DataPlaneRequest::Vrouter
                        },
                        ..ForwardingRequest::default()
                    },
                    guests: guests
                        .into_iter()
                        .enumerate()
                        .map(
                            |(at, (cpus, memory_mib, node, cache_percent, bandwidth_percent))| {
                                GuestRequest {
                                    name: format!("g{at}"),
                                    cpus,
                                    memory_mib,
                                    node,
                                    cache_percent,
                                    bandwidth_percent,
                                }
                            },
                        )
                        .collect(),
                    neighbours: neighbours
                        .into_iter()
                        .enumerate()
                        .map(|(at, (cpus, _, node, cache_percent, bandwidth_percent))| {
                            NeighbourRequest {
                                name: format!("n{at}"),
                                cpus,
                                node,
                                cache_percent,
                                bandwidth_percent,
                            }
                        })
                        .collect(),
                    nics: nics
                        .into_iter()
                        .map(|(at, queues, functions)| NicRequest {
                            pci: format!("0000:0{at}:00.0"),
                            queues,
                            functions,
                            mtu: None,
                        })
                        .collect(),
                    ..PartitionRequest::default()
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_the_machine_and_the_requests_the_plan_holds(machine in some_machine(), many in prop::collection::vec(some_request(), 12)) {
        let inventory = inventory(&machine);
        for requested in many {
            match plan(&inventory, &requested) {
                Ok(found) => check(&inventory, &found),
                Err(infeasible) => {
                    prop_assert!(!infeasible.conflicts.is_empty());
                    let cores = Cores::new(&inventory, inventory.cpus_online.as_ref().unwrap()).all.len();
                    match infeasible.nearest {
                        Some((near, found)) => {
                            check(&inventory, &found);
                            prop_assert_eq!(plan(&inventory, &near), Ok(found));
                        }
                        None => prop_assert!(cores < 2, "{} cores and no nearest plan: {:?}", cores, infeasible.conflicts),
                    }
                }
            }
        }
    }
}
