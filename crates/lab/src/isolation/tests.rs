// SPDX-License-Identifier: Apache-2.0
//! Isolation cases on simulated machines: the parts that each supports, the reasons for missing parts, and the written settings.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use quietwire_host::CpuList;
use quietwire_host::apply::Target;
use quietwire_host::files::Disk;
use quietwire_host::inventory::Inventory;
use quietwire_host::machines::{
    Machine, arm, many_caches, priority_cores, two_packages_with_clusters, virtual_machine,
};
use quietwire_host::partition::Role;
use quietwire_host::resctrl::fake::{FakeResctrl, Rules};

use super::*;
use crate::LabError;

/// The parts of the inventory that are read from files; only directories on a disk contain CPU sets.
fn read(machine: &Machine) -> Inventory {
    let root = tempfile::tempdir().unwrap();
    machine.write(root.path()).unwrap();
    Inventory::read(root.path())
}

fn list(text: &str) -> CpuList {
    text.parse().unwrap()
}

fn setup(forwarding: &str, apparatus: &str) -> Setup {
    Setup {
        forwarding: list(forwarding),
        apparatus: list(apparatus),
        ports: Vec::new(),
    }
}

fn case(name: &str) -> &'static IsolationCase {
    IsolationCase::named(name).unwrap()
}

/// Returns the names of the cases that a machine supports.
fn available(machine: &Inventory, setup: Option<&Setup>) -> Vec<&'static str> {
    let cases = isolation_cases().iter();
    cases
        .filter(|case| case.unavailable(machine, setup).is_none())
        .map(|case| case.name)
        .collect()
}

fn reason(machine: &Inventory, name: &str, setup: &Setup) -> String {
    case(name).unavailable(machine, Some(setup)).unwrap()
}

#[test]
fn each_machine_has_the_cases_that_its_hardware_allows() {
    let all = |machine: Machine| available(&read(&machine), None);
    assert_eq!(all(virtual_machine()), ["none", "pinned", "isolated"]);
    assert_eq!(all(arm()), ["none", "pinned", "isolated", "sr-iov", "full"]);
    let without_sst = [
        "none",
        "pinned",
        "isolated",
        "sibling-idle",
        "rdt-cat",
        "rdt-cat-mba",
        "sr-iov",
        "full",
    ];
    assert_eq!(all(two_packages_with_clusters()), without_sst);
    assert_eq!(all(many_caches()), without_sst);
    assert_eq!(all(priority_cores()).len(), isolation_cases().len());
    let alone = Inventory {
        cpus_online: Some(list("0")),
        ..Inventory::default()
    };
    assert_eq!(available(&alone, None), ["none", "pinned"]);
}

#[test]
fn means_that_a_machine_lacks_are_reported() {
    let machine = read(&virtual_machine());
    let on = setup("1", "0");
    for (name, says) in [
        ("sibling-idle", "no forwarding CPU has a sibling"),
        ("rdt-cat", "does not support resctrl"),
        ("rdt-cat-mba", "does not support resctrl"),
        ("nominal-frequency", "states no nominal frequency"),
        ("sst-bf", "no base frequency"),
        ("sr-iov", "SR-IOV"),
        ("full", "no means beyond those of isolated"),
    ] {
        let text = reason(&machine, name, &on);
        assert!(text.contains(says), "{name}: {text}");
    }
    let mut with_flags = machine.clone();
    with_flags.rdt.cpu_flags = vec!["cat_l3".to_owned(), "mba".to_owned()];
    let text = reason(&with_flags, "rdt-cat-mba", &on);
    assert!(text.contains("mount -t resctrl"), "{text}");
}

#[test]
fn a_set_up_may_lack_what_its_machine_has() {
    let machine = read(&priority_cores());
    // Cores 1, 4, 7 … of each package of 20 are fast; second threads come from 40 on.
    for (name, on, says) in [
        ("sst-bf", setup("2", "0"), "CPU 2 is not one of"),
        (
            "sibling-idle",
            setup("1", "41"),
            "CPU 41 is a sibling of a forwarding",
        ),
        ("sibling-idle", setup("1,41", "0"), "forward themselves"),
        ("sr-iov", setup("1", "0"), "connected within the machine"),
        ("rdt-cat-mba", setup("1", "0,2-79"), "no CPU outside"),
    ] {
        let text = reason(&machine, name, &on);
        assert!(text.contains(says), "{name}: {text}");
    }
    let everything = machine.cpus_online.clone().unwrap().to_string();
    let text = reason(&machine, "isolated", &setup(&everything, ""));
    assert!(text.contains("no CPU is left"), "{text}");
    let with_port = Setup {
        ports: vec!["0000:02:00.0".to_owned()],
        ..setup("1", "0")
    };
    let clusters = read(&two_packages_with_clusters());
    let text = reason(&clusters, "sr-iov", &with_port);
    assert!(text.contains("0000:02:00.0 has no virtual"), "{text}");
}

#[test]
fn a_plan_has_what_its_case_names_and_nothing_else() {
    let machine = read(&priority_cores());
    let on = setup("1", "0");
    let plan = |name: &str| case(name).plan(&machine, &on).unwrap();
    assert_eq!(plan("none"), None);
    assert_eq!(plan("pinned"), None);
    let isolated = plan("isolated").unwrap();
    // The forwarding core's second thread is free for others.
    assert_eq!(isolated.isolated(), list("1"));
    assert_eq!(isolated.housekeeping, list("0,2-79"));
    assert!(isolated.classes.is_empty() && isolated.frequencies.is_empty());
    assert!(isolated.boot.is_empty() && isolated.huge_pages.is_empty());
    assert!(isolated.nics.is_empty());

    let idle = plan("sibling-idle").unwrap();
    assert_eq!(idle.cpus(Role::Idle), list("41"));
    assert_eq!(idle.housekeeping, list("0,2-40,42-79"));

    let cat = plan("rdt-cat").unwrap();
    assert_eq!(cat.classes.len(), 3);
    assert_eq!(cat.housekeeping, isolated.housekeeping);
    for class in &cat.classes {
        assert!(class.bandwidth.is_empty() && !class.masks.is_empty());
    }
    let both = plan("rdt-cat-mba").unwrap();
    let others = both.classes.iter().find(|class| class.name == "others");
    let others = others.unwrap();
    assert_eq!(others.cpus, list("2-79"));
    // Masks and percent of the bandwidth are the published ones, in both caches.
    for (name, mask, percent) in [
        ("default", 0x7ff, 100),
        ("forwarding", 0x7f0, 100),
        ("neighbours", 0x3, 10),
        ("others", 0xc, 10),
    ] {
        let class = both.classes.iter().find(|class| class.name == name);
        let class = class.unwrap();
        let masks: Vec<u64> = class.masks.iter().map(|it| it.mask).collect();
        assert_eq!(masks, [mask, mask], "{name}");
        let limits: Vec<u32> = class.bandwidth.iter().map(|it| it.limit).collect();
        assert_eq!(limits, [percent, percent], "{name}");
    }
    assert_eq!(both.classes.len(), 4);
    // In the case of the cache alone, forwarding has exclusive ways in every cache.
    let forwarding = &cat.classes[1..];
    let forwarding = forwarding.iter().find(|class| class.name == "forwarding");
    for own in &forwarding.unwrap().masks {
        let overlaps = cat
            .classes
            .iter()
            .filter(|class| class.name != "forwarding")
            .flat_map(|class| &class.masks)
            .any(|mask| mask.domain == own.domain && mask.mask & own.mask != 0);
        // No CPU of the other package forwards, so the class has the remaining ways there.
        assert!(!overlaps || own.domain != 0, "{cat:?}");
    }
    let nominal = plan("nominal-frequency").unwrap();
    for set in &nominal.frequencies {
        assert_eq!(
            (set.min_khz, set.max_khz),
            (Some(2_300_000), Some(2_300_000))
        );
    }
    let set: usize = nominal.frequencies.iter().map(|set| set.cpus.len()).sum();
    assert_eq!(set, 80);
    assert!(nominal.classes.is_empty());
    let fast = plan("sst-bf").unwrap();
    assert!(fast.frequencies.iter().any(|set| set.is_high_priority));
    assert!(fast.classes.is_empty());
    let full = plan("full").unwrap();
    assert_eq!(full.cpus(Role::Idle), list("41"));
    assert!(full.classes.len() == 4 && !full.frequencies.is_empty());
}

/// A machine below a directory, with a resctrl that follows the kernel's rules.
struct Rig {
    root: tempfile::TempDir,
    fake: FakeResctrl,
    inventory: Inventory,
}

impl Rig {
    fn new(machine: &Machine) -> Self {
        let root = tempfile::tempdir().unwrap();
        machine.write(root.path()).unwrap();
        let inventory = Inventory::read(root.path());
        let resctrl = machine.resctrl.clone().unwrap();
        let rules = Rules {
            domains: machine.packages * machine.caches,
            cbm_mask: (1 << resctrl.ways) - 1,
            min_cbm_bits: resctrl.ways_min,
            closids: resctrl.classes as usize,
            cpus: machine.cpus(),
            ..Rules::default()
        };
        let fake = FakeResctrl::new(root.path(), rules, &[4711]);
        Self {
            root,
            fake,
            inventory,
        }
    }

    fn target(&self) -> Target<'_> {
        Target {
            files: &self.fake,
            storage: &Disk,
            root: self.root.path().to_owned(),
            state_directory: self.path("run/partition"),
        }
    }

    fn path(&self, below: &str) -> std::path::PathBuf {
        self.root.path().join(below)
    }

    fn apply(&self, name: &str, setup: &Setup, marker: &Path) -> Result<Applied, LabError> {
        let plan = case(name).plan(&self.inventory, setup).unwrap().unwrap();
        Applied::apply(&self.target(), &plan, marker)
    }
}

#[test]
fn classes_of_service_are_written_by_the_kernels_rules_and_removed() {
    let rig = Rig::new(&two_packages_with_clusters());
    let before = rig.fake.groups();
    let marker = rig.path("marker");
    let applied = rig.apply("rdt-cat", &setup("2", "0"), &marker).unwrap();
    assert!(marker.exists());
    let groups = rig.fake.groups();
    let names: Vec<&str> = groups.keys().map(String::as_str).collect();
    assert_eq!(names, ["", "forwarding", "others"]);
    let ways = |group: &str, domain: u32| groups[group].ways[&("L3".to_owned(), domain)];
    assert_eq!(groups["forwarding"].cpus, BTreeSet::from([2]));
    assert!(groups["others"].cpus.contains(&3) && !groups["others"].cpus.contains(&0));
    assert_eq!(ways("forwarding", 0) & (ways("", 0) | ways("others", 0)), 0);
    // Without a bandwidth limit, which this case does not have.
    assert!(groups.values().all(|group| group.share[&0] == 100));
    let tasks = applied.neighbours_tasks.clone().unwrap();
    assert_eq!(tasks, rig.path("sys/fs/resctrl/others/tasks"));
    let reported = applied.settings.join("\n");
    assert!(reported.contains("resctrl/forwarding"), "{reported}");
    applied.take_back(&rig.target()).unwrap();
    assert_eq!(rig.fake.groups(), before);
    assert!(!marker.exists());

    let applied = rig.apply("rdt-cat-mba", &setup("2", "0"), &marker).unwrap();
    let tasks = applied.neighbours_tasks.clone().unwrap();
    assert_eq!(tasks, rig.path("sys/fs/resctrl/neighbours/tasks"));
    let groups = rig.fake.groups();
    let written = |group: &str| {
        let group = &groups[group];
        (group.ways[&("L3".to_owned(), 0)], group.share[&0])
    };
    assert_eq!(written(""), (0x7ff, 100));
    assert_eq!(written("forwarding"), (0x7f0, 100));
    assert_eq!(written("neighbours"), (0x3, 10));
    assert_eq!(written("others"), (0xc, 10));
    assert!(groups["neighbours"].cpus.is_empty());
    applied.take_back(&rig.target()).unwrap();
    assert_eq!(rig.fake.groups(), before);
}

#[test]
fn functions_are_made_and_go_again() {
    let rig = Rig::new(&two_packages_with_clusters());
    let on = Setup {
        ports: vec!["0000:65:00.0".to_owned(); 2],
        // On the controller's node.
        ..setup("8", "0")
    };
    let file = rig.path("sys/bus/pci/devices/0000:65:00.0/sriov_numvfs");
    let held = || fs::read_to_string(&file).unwrap().trim().to_owned();
    let before = held();
    let marker = rig.path("marker");
    let applied = rig.apply("sr-iov", &on, &marker).unwrap();
    assert_eq!((before.as_str(), held().as_str()), ("0", "2"));
    applied.take_back(&rig.target()).unwrap();
    assert_eq!(held(), before);
    // The kernel holds the number back while a driver hangs.
    let mut unknown = rig.inventory.clone();
    for nic in &mut unknown.nics {
        nic.functions = None;
    }
    let reason = reason(&unknown, "sr-iov", &on);
    assert!(reason.contains("0000:65:00.0 cannot be read"), "{reason}");
}

#[test]
fn a_partition_of_a_killed_lab_is_rolled_back_by_the_next_process() {
    let rig = Rig::new(&two_packages_with_clusters());
    let before = rig.fake.groups();
    let (first, second) = (rig.path("first"), rig.path("second"));
    let on = setup("2", "0");
    // The state after a kill: applied, noted, the lock released by the kernel.
    drop(rig.apply("rdt-cat", &on, &first).unwrap());
    assert_ne!(rig.fake.groups(), before);
    let undone = take_back_left(&rig.target(), &first).unwrap();
    assert!(!undone.is_empty());
    assert_eq!(rig.fake.groups(), before);
    assert!(!first.exists());

    drop(rig.apply("rdt-cat", &on, &first).unwrap());
    // The next lab rolls it back before it applies its own, which the first one's clean-up then leaves alone.
    let applied = rig.apply("rdt-cat-mba", &on, &second).unwrap();
    assert_eq!(rig.fake.groups()["others"].share[&0], 10);
    assert!(take_back_left(&rig.target(), &first).unwrap().is_empty());
    assert_eq!(rig.fake.groups()["others"].share[&0], 10);
    assert!(!first.exists());
    applied.take_back(&rig.target()).unwrap();
    assert_eq!(rig.fake.groups(), before);
}

#[test]
fn a_partition_of_the_machines_owner_is_left_alone() {
    let rig = Rig::new(&two_packages_with_clusters());
    let on = setup("2", "0");
    let plan = case("rdt-cat").plan(&rig.inventory, &on).unwrap().unwrap();
    quietwire_host::apply::apply(&rig.target(), &plan, None).unwrap();
    let owned = rig.fake.groups();
    let error = rig.apply("isolated", &on, &rig.path("marker")).unwrap_err();
    assert_eq!(error.fault(), quietwire_base::Fault::MissingPrerequisite);
    assert!(error.to_string().contains("rollback"), "{error}");
    assert_eq!(rig.fake.groups(), owned);
    assert!(!rig.path("marker").exists());
}

#[test]
fn an_isolation_that_cannot_be_applied_is_reported_and_undone() {
    let rig = Rig::new(&two_packages_with_clusters());
    let before = rig.fake.groups();
    let on = setup("2", "0");
    let mut plan = case("rdt-cat").plan(&rig.inventory, &on).unwrap().unwrap();
    plan.classes[1].masks[0].mask = 0x5;
    let marker = rig.path("marker");
    let error = Applied::apply(&rig.target(), &plan, &marker).unwrap_err();
    assert!(error.to_string().contains("non-consecutive"), "{error}");
    assert_eq!(rig.fake.groups(), before);
    assert!(!marker.exists());
}
