// SPDX-License-Identifier: Apache-2.0
//! A stop while a plan is applied: the machine and the state directory are as before. A stop while it is rolled back: the next rollback
//! continues.

use std::cell::Cell;
use std::io;
use std::path::Path;

use super::*;
use crate::files::Files;

#[test]
fn a_stop_between_two_changes_undoes_all_of_them() {
    for cgroups in [FIRST_VERSION, SECOND_VERSION] {
        let mut points = 0;
        loop {
            let rig = Rig::new(cgroups);
            let (target, before) = (rig.target(), rig.contents());
            let (stop, watcher) = stop_at(points);
            let report = apply_until(&target, &plan(), Some(watcher), &stop).unwrap();
            let Some(stopped) = report.stopped else {
                assert!(!stop.load(Ordering::Relaxed));
                assert_eq!(differences(&target, &plan()).unwrap(), []);
                break;
            };
            assert_eq!(stopped.left(), 0, "{stopped:?}");
            assert_eq!(stopped.state_error, None);
            assert!(!stopped.rolled_back.is_empty());
            assert_eq!(rig.contents(), before, "stopped at point {points}");
            assert!(!status(&target).unwrap().is_applied());
            for file in ["journal", "plan.json", "rendered"] {
                assert!(!target.state_directory.join(file).exists(), "{file}");
            }
            points += 1;
        }
        assert!(points > 30, "{points}");
    }
}

#[test]
fn a_stop_restores_the_plan_that_was_applied_before() {
    let mut earlier = plan();
    earlier.huge_pages[0].pages = 32;
    earlier.nics[0].functions = Some(1);
    let mut points = 0;
    loop {
        let rig = Rig::new(FIRST_VERSION);
        let (target, original) = (rig.target(), rig.contents());
        apply(&target, &earlier, None).unwrap();
        let of_plan = target.state_directory.join("plan.json");
        let state = || {
            let changes = status(&target).unwrap().changes;
            (rig.contents(), changes, fs::read(&of_plan).unwrap())
        };
        let before = state();
        let (stop, watcher) = stop_at(points);
        let report = apply_until(&target, &plan(), Some(watcher), &stop).unwrap();
        let Some(stopped) = report.stopped else {
            break;
        };
        assert_eq!(stopped.left(), 0, "{stopped:?}");
        assert_eq!(stopped.state_error, None);
        assert_eq!(state(), before, "stopped at point {points}");
        rig.roll_back();
        assert_eq!(rig.contents(), original);
        points += 1;
    }
    // Pages, no functions, and functions, with two calls each.
    assert_eq!(points, 6);
}

#[test]
fn a_stop_before_the_first_change_undoes_nothing_of_the_earlier_plan() {
    let rig = Rig::new(FIRST_VERSION);
    let target = rig.target();
    apply(&target, &plan(), None).unwrap();
    let before = rig.contents();
    let mut smaller = plan();
    smaller.classes.pop();
    smaller.frequencies.clear();
    let stop = AtomicBool::new(true);
    let report = apply_until(&target, &smaller, None, &stop).unwrap();
    assert_eq!(report.stopped, Some(Stopped::default()));
    assert!(report.applied.is_empty() && report.undone.is_empty());
    assert_eq!(rig.contents(), before);
    let applied = applied_plan(&target.state_directory).unwrap().unwrap();
    assert_eq!(applied.classes.len(), plan().classes.len());
    assert_eq!(differences(&target, &plan()).unwrap(), []);
}

/// The kernel's files, with a stop flag that is set at the Nth change of a file, from 0.
#[derive(Debug)]
struct Stopping<'a> {
    files: &'a FakeResctrl,
    left: Cell<u32>,
    stop: AtomicBool,
}

impl Stopping<'_> {
    fn count(&self) {
        match self.left.get().checked_sub(1) {
            Some(less) => self.left.set(less),
            None => self.stop.store(true, Ordering::Relaxed),
        }
    }
}

impl Files for Stopping<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.files.read(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        self.count();
        self.files.write(path, text)
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.count();
        self.files.make_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.count();
        self.files.remove_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.files.list(path)
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.files.is_directory(path)
    }
}

#[test]
fn a_rollback_that_is_stopped_keeps_the_other_changes_for_the_next_one() {
    for cgroups in [FIRST_VERSION, SECOND_VERSION] {
        let mut points = 0;
        loop {
            let rig = Rig::new(cgroups);
            let (target, before) = (rig.target(), rig.contents());
            apply(&target, &plan(), None).unwrap();
            let files = Stopping {
                files: &rig.fake,
                left: Cell::new(points),
                stop: AtomicBool::new(false),
            };
            let stopping = Target {
                files: &files,
                ..target.clone()
            };
            let undone = roll_back_until(&stopping, false, &files.stop).unwrap();
            let (left, restored): (Vec<_>, Vec<_>) =
                undone.iter().partition(|(_, outcome)| outcome.is_left());
            let journal = target.state_directory.join("journal");
            if left.is_empty() {
                assert_eq!(rig.contents(), before);
                assert!(!journal.exists());
                break;
            }
            assert!(!restored.is_empty());
            let kept = journal::read(&journal).unwrap();
            for (change, outcome) in left {
                assert!(matches!(outcome, UndoOutcome::NotTried(_)), "{outcome}");
                assert!(kept.contains(change), "{change}");
            }
            for (change, _) in restored {
                assert!(!kept.contains(change), "{change}");
            }
            rig.roll_back();
            assert_eq!(rig.contents(), before, "stopped at point {points}");
            assert!(!journal.exists());
            points += 1;
        }
        assert!(points > 10, "{points}");
    }
}

#[test]
fn a_rollback_that_is_stopped_before_its_first_change_undoes_nothing() {
    let rig = Rig::new(FIRST_VERSION);
    let (target, before) = (rig.target(), rig.contents());
    apply(&target, &plan(), None).unwrap();
    let applied = rig.contents();
    let undone = roll_back_until(&target, false, &AtomicBool::new(true)).unwrap();
    let is_not_tried =
        |(_, outcome): &(Change, UndoOutcome)| matches!(outcome, UndoOutcome::NotTried(_));
    assert!(!undone.is_empty() && undone.iter().all(is_not_tried));
    assert_eq!(rig.contents(), applied);
    rig.roll_back();
    assert_eq!(rig.contents(), before);
}
