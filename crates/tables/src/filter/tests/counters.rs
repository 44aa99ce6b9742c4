// SPDX-License-Identifier: Apache-2.0
//! Frames of rules that several threads count in counters of their own, also while rules change.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quietwire_base::{Deadline, wait_until};

use super::*;

const THREADS: u64 = 3;
/// Frames of each VLAN in a burst.
const EACH: u64 = 20;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a rule on a VLAN with this counter.
fn counted(vlan: u16, frames: &Arc<RuleFrames>) -> PortRule {
    PortRule {
        frames: Arc::clone(frames),
        ..on_vlan(&(vlan, Action::Drop))
    }
}

/// Judges a burst with frames of the VLANs 1 and 2, and others.
fn judge_burst(table: Arc<RuleTable>, own: &mut ThreadFrames) {
    let frame = |vlan: u8| {
        let mut frame = [vec![2; 12], vec![0x81, 0, 0, vlan, 8, 6]].concat();
        frame.resize(60, 0);
        frame
    };
    let frames = [1, 2, 4].map(frame);
    let received: Vec<(&[u8], u32)> = (0..EACH)
        .flat_map(|_| frames.iter().map(|frame| (&frame[..], 60)))
        .collect();
    let port = PortRules::new(table, 1, None);
    judge_own(&port, &received, &mut [Verdict::Short; BURST_MAX], own);
}

#[test]
fn frames_of_all_threads_are_counted() {
    const BURSTS: u64 = 200;
    let counters = RuleCounters::default();
    let rules = [counters.rule(), counters.rule(), counters.rule()];
    let compiled = (1..).zip(&rules).map(|(vlan, rule)| counted(vlan, rule));
    let fallback = Fallback::counted_in(&counters);
    let table = Arc::new(RuleTable::new(compiled, fallback.clone()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let mut own = counters.thread();
            let table = &table;
            scope.spawn(move || {
                for _ in 0..BURSTS {
                    judge_burst(Arc::clone(table), &mut own);
                }
            });
        }
    });
    let all = THREADS * BURSTS * EACH;
    let counts = rules.each_ref().map(|one| one.get());
    assert_eq!(counts, [all, all, 0]);
    assert_eq!(fallback.default_frames.get(), all);
    assert_eq!(fallback.malformed_frames.get(), 0);
}

/// One rule stays, at other places of the list, another one is replaced by one like it, and a third comes and goes.
#[test]
fn no_frame_is_lost_or_counted_twice_while_rules_change() {
    const CHANGES: usize = 40;
    let counters = RuleCounters::default();
    let fallback = Fallback::counted_in(&counters);
    let kept = counters.rule();
    let mut replaced = vec![counters.rule()];
    let rules = [counted(1, &kept), counted(2, &replaced[0])];
    let first = Arc::new(RuleTable::new(rules, fallback.clone()));
    let (current, has_ended) = (Mutex::new(first), AtomicBool::new(false));
    let bursts: u64 = std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|_| {
            let mut own = counters.thread();
            let (current, has_ended) = (&current, &has_ended);
            scope.spawn(move || {
                let deadline = Deadline::after(TIMEOUT);
                let mut bursts = 0u64;
                while !has_ended.load(Ordering::Relaxed) && !deadline.has_passed() {
                    let table = Arc::clone(&current.lock().unwrap());
                    // Others may have the next list meanwhile.
                    for _ in 0..4 {
                        judge_burst(Arc::clone(&table), &mut own);
                        bursts += 1;
                    }
                }
                bursts
            })
        });
        let threads: Vec<_> = threads.collect();
        for change in 0..CHANGES {
            // Its place may be that of a rule that has gone.
            let (next, third) = (counters.rule(), counters.rule());
            assert_eq!((next.get(), third.get()), (0, 0), "change {change}");
            let former = Arc::clone(&current.lock().unwrap());
            let table = match change % 2 {
                0 => {
                    let rules = [counted(4, &third), counted(2, &next), counted(1, &kept)];
                    RuleTable::after(Some(&former), rules, &[], &[], fallback.clone())
                }
                _ => {
                    let new = vec![(counted(2, &next), None)];
                    former.with_changed((0, 1), new, fallback.clone()).unwrap()
                }
            };
            replaced.push(next);
            *current.lock().unwrap() = Arc::new(table);
            let before = kept.get();
            assert!(
                wait_until(TIMEOUT, || kept.get() > before),
                "change {change}: no frame is counted"
            );
        }
        has_ended.store(true, Ordering::Relaxed);
        threads.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(kept.get(), bursts * EACH);
    let of_replaced: u64 = replaced.iter().map(|one| one.get()).sum();
    assert_eq!(of_replaced, bursts * EACH);
}
