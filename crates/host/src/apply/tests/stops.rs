// SPDX-License-Identifier: Apache-2.0
//! A stop while a plan is applied: the machine and the state directory are as before.

use super::*;

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
