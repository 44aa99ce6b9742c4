// SPDX-License-Identifier: Apache-2.0
//! Tests with a fake resctrl that follows the kernel's rules, and with the machine's own resctrl if it has one.

use proptest::prelude::*;
use quietwire_base::ProcessId;

use super::fake::{FakeResctrl, Rules};
use super::*;
use crate::files::Disk;
use crate::journal::{self, Journal, UndoOutcome};

struct Rig {
    directory: tempfile::TempDir,
    fake: FakeResctrl,
    resctrl: Resctrl,
    journal: Journal,
}

fn rig(rules: Rules) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let own = ProcessId::own().unwrap();
    let fake = FakeResctrl::new(directory.path(), rules, &[own.pid]);
    let resctrl = Resctrl::find(&fake, directory.path()).unwrap();
    let journal = Journal::open(&directory.path().join("journal")).unwrap();
    Rig {
        directory,
        fake,
        resctrl,
        journal,
    }
}

impl Rig {
    fn undo(&self) -> Vec<(journal::Change, UndoOutcome)> {
        let changes = journal::read(self.journal.path()).unwrap();
        journal::undo_in(&self.fake, &changes, false)
    }
}

fn schemata(text: &str) -> Schemata {
    text.parse().unwrap()
}

#[test]
fn a_machine_without_has_none() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(Resctrl::find(&Disk, directory.path()), None);
}

#[test]
fn groups_are_made_filled_and_undone_to_what_was_there() {
    let mut rig = rig(Rules::default());
    let (fake, resctrl) = (&rig.fake, &rig.resctrl);
    // A group of another program, with a CPU that the test needs.
    fake.make_directory(&resctrl.group("theirs")).unwrap();
    let theirs = resctrl.group("theirs");
    fake.write(&theirs.join("cpus_list"), "3-4\n").unwrap();
    fake.write(&theirs.join("schemata"), "L3:0=3f0\n").unwrap();
    let before = fake.groups();

    let own = ProcessId::own().unwrap();
    let journal = &mut rig.journal;
    for round in 0..2 {
        let first = round == 0;
        assert_eq!(resctrl.create(fake, journal, "fwd").unwrap(), first);
        let wanted = schemata("L3:0=f;1=f\nMB:0=55");
        let written = resctrl.set_schemata(fake, journal, "fwd", &wanted).unwrap();
        assert_eq!(written, first);
        let rest = schemata("L3:0=7f0");
        let written = resctrl.set_schemata(fake, journal, "", &rest).unwrap();
        assert_eq!(written, first);
        let cpus = "2-3".parse().unwrap();
        assert_eq!(
            resctrl.set_cpus(fake, journal, "fwd", &cpus).unwrap(),
            first
        );
        let moved = resctrl.move_tasks(fake, journal, "fwd", &[own]).unwrap();
        assert_eq!(moved, usize::from(first));
    }
    let groups = resctrl.groups(fake).unwrap();
    let of = |name: &str| groups.iter().find(|group| group.name == name).unwrap();
    assert_eq!(of("fwd").schemata.get("MB", 0), Some(60));
    assert_eq!(of("fwd").cpus, "2-3".parse().unwrap());
    assert_eq!(of("fwd").tasks, [own.pid]);
    assert_eq!(of("theirs").cpus, "4".parse().unwrap());
    assert_eq!(of("").cpus, "0-1,5-7".parse().unwrap());

    for (change, outcome) in rig.undo() {
        let fine = matches!(outcome, UndoOutcome::Restored | UndoOutcome::AlreadyGone);
        assert!(fine, "{change}: {outcome}");
    }
    assert_eq!(rig.fake.groups(), before);
}

#[test]
fn classes_changed_by_another_program_are_not_rolled_back() {
    let mut rig = rig(Rules::default());
    let wanted = schemata("L3:0=7f0");
    rig.resctrl
        .set_schemata(&rig.fake, &mut rig.journal, "", &wanted)
        .unwrap();
    let path = rig.resctrl.group("").join("schemata");
    // The change must not affect another domain.
    rig.fake.write(&path, "L3:1=1\n").unwrap();
    rig.fake.write(&path, "L3:0=1\n").unwrap();
    let outcomes = rig.undo();
    assert!(
        matches!(outcomes[0].1, UndoOutcome::ChangedSince(_)),
        "{outcomes:?}"
    );
    let changes = journal::read(rig.journal.path()).unwrap();
    let outcomes = journal::undo_in(&rig.fake, &changes, true);
    assert_eq!(outcomes[0].1, UndoOutcome::Restored);
    let now = rig.resctrl.groups(&rig.fake).unwrap();
    assert_eq!(now[0].schemata.get("L3", 0), Some(0x7ff));
    assert_eq!(now[0].schemata.get("L3", 1), Some(1));
    drop(rig.directory);
}

#[test]
fn the_kernel_s_refusal_is_reported() {
    let mut rig = rig(Rules {
        closids: 2,
        ..Rules::default()
    });
    let (fake, resctrl, journal) = (&rig.fake, &rig.resctrl, &mut rig.journal);
    assert!(resctrl.create(fake, journal, "one").unwrap());
    let error = resctrl.create(fake, journal, "two").unwrap_err();
    assert!(error.to_string().contains("Out of CLOSIDs"), "{error}");
    assert_eq!(resctrl.info(fake).groups_max(), Some(2));
    let gap = schemata("L3:0=5");
    let error = resctrl
        .set_schemata(fake, journal, "one", &gap)
        .unwrap_err();
    assert!(error.to_string().contains("non-consecutive"), "{error}");
    let cpus = "64".parse().unwrap();
    assert!(resctrl.set_cpus(fake, journal, "one", &cpus).is_err());
    for (change, outcome) in rig.undo() {
        let fine = matches!(outcome, UndoOutcome::Restored | UndoOutcome::AlreadyGone);
        assert!(fine, "{change}: {outcome}");
    }
    assert_eq!(rig.fake.groups().len(), 1);
}

#[test]
fn nonsense_is_no_schemata() {
    for text in ["L3", "L3:", "L3:x=1", "L3:0=g", "MB:0=a", "L3:0=1;0=2"] {
        assert!(text.parse::<Schemata>().is_err(), "{text}");
    }
    let error = schemata("L9:0=1").check(&Info::default()).unwrap_err();
    assert!(error.to_string().contains("supported: none"), "{error}");
}

proptest! {
    /// Tests that validation accepts and refuses the same schemata as the kernel.
    #[test]
    fn the_check_and_the_kernel_agree(
        mask in 0u64..0x1fff, share in 0u64..120, min_cbm_bits in 1u32..4, sparse in any::<bool>(),
        gran in prop::sample::select(vec![1u32, 5, 10]), is_mask in any::<bool>(), cdp in any::<bool>(),
    ) {
        let caches = if cdp { vec!["L3CODE", "L3DATA"] } else { vec!["L3"] };
        let cache = caches[0];
        let mut rig = rig(Rules { min_cbm_bits, sparse, bandwidth_gran: gran, caches, ..Rules::default() });
        let mut wanted = Schemata::default();
        if is_mask { wanted.set(cache, 1, mask) } else { wanted.set("MB", 1, share) }
        let ours = wanted.check(&rig.resctrl.info(&rig.fake));
        let kernels = rig.resctrl.set_schemata(&rig.fake, &mut rig.journal, "", &wanted);
        prop_assert_eq!(ours.is_ok(), kernels.is_ok(), "{:?} {:?}", ours, kernels);
        if ours.is_ok() {
            let now = rig.resctrl.groups(&rig.fake).unwrap();
            let rounded = wanted.rounded(&rig.resctrl.info(&rig.fake));
            prop_assert_eq!(now[0].schemata.restricted_to(&wanted), rounded);
        }
    }
}

#[test]
#[ignore = "requires a processor with cache allocation, resctrl mounted at /sys/fs/resctrl, and root; make test-hardware runs it"]
fn resctrl_of_the_machine_is_used_and_left_unchanged() {
    let resctrl = Resctrl::find(&Disk, Path::new("/")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(&directory.path().join("journal")).unwrap();
    let before = resctrl.groups(&Disk).unwrap();
    let name = format!("quietwire-test-{}", std::process::id());
    let made = resctrl.create(&Disk, &mut journal, &name);
    let filled = made.and_then(|_| {
        let info = resctrl.info(&Disk);
        let mut wanted = Schemata::default();
        for (resource, cache) in &info.caches {
            let first = (1u64 << cache.min_cbm_bits.max(1)) - 1;
            for domain in before[0].schemata.0[resource].keys() {
                wanted.set(resource, *domain, first);
            }
        }
        wanted.check(&info).map_err(std::io::Error::other)?;
        resctrl.set_schemata(&Disk, &mut journal, &name, &wanted)
    });
    for (change, outcome) in journal::undo(&journal::read(journal.path()).unwrap()) {
        let fine = matches!(outcome, UndoOutcome::Restored | UndoOutcome::AlreadyGone);
        assert!(fine, "{change}: {outcome}");
    }
    filled.unwrap();
    let after = resctrl.groups(&Disk).unwrap();
    assert_eq!(after.len(), before.len());
    assert_eq!(after[0].schemata, before[0].schemata);
}
