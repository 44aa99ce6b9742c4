// SPDX-License-Identifier: Apache-2.0

use std::sync::atomic::AtomicBool;
use std::thread::scope;
use std::time::{Duration, Instant};

use super::*;

fn key(number: u64) -> Key {
    Key::of_number(0x0200_0000_0000 | number)
}

fn learn(fdb: &Fdb, number: u64, port: u16, now_s: u32) -> Learned {
    fdb.learn(fdb.hash(key(number)), port, fdb.now(now_s), u32::MAX)
}

fn look_up(fdb: &Fdb, number: u64, now_s: u32) -> Option<u16> {
    fdb.look_up(fdb.hash(key(number)), fdb.now(now_s))
}

fn sweep(fdb: &Fdb, now_s: u32) -> u32 {
    fdb.sweep(0, fdb.buckets(), now_s)
}

#[test]
fn as_many_fit_as_were_promised() {
    for entries_max in [1, 2, 7, 64, 1000, 65_536, 98_304] {
        let fdb = Fdb::new(entries_max, 300);
        for number in 0..u64::from(entries_max) {
            assert_eq!(
                learn(&fdb, number, 1, 5),
                Learned::New,
                "{number} of {entries_max}"
            );
        }
        assert_eq!(fdb.entries(), entries_max);
        assert_eq!(learn(&fdb, 1 << 30, 1, 5), Learned::Full);
        assert_eq!(look_up(&fdb, 1 << 30, 5), None);
        for number in 0..u64::from(entries_max) {
            assert_eq!(look_up(&fdb, number, 5), Some(1));
        }
        assert_eq!(fdb.snapshot(5).count(), entries_max as usize);
        assert!(fdb.remove(key(0)) && !fdb.remove(key(0)));
        assert_eq!(learn(&fdb, 1 << 30, 2, 5), Learned::New);
    }
}

#[test]
fn entries_age_from_when_they_were_last_seen() {
    let fdb = Fdb::new(16, 10);
    learn(&fdb, 1, 1, 100);
    learn(&fdb, 2, 1, 100);
    assert_eq!(learn(&fdb, 2, 1, 105), Learned::Known);
    assert_eq!(look_up(&fdb, 1, 110), Some(1));
    assert_eq!(sweep(&fdb, 110), 0);
    // Nothing is given out that is too old, swept or not.
    assert_eq!(look_up(&fdb, 1, 111), None);
    assert_eq!(fdb.entries(), 2);
    assert_eq!(sweep(&fdb, 111), 1);
    assert_eq!((fdb.entries(), look_up(&fdb, 2, 111)), (1, Some(1)));
    assert_eq!(learn(&fdb, 2, 3, 120), Learned::New);
    assert_eq!(learn(&fdb, 2, 4, 120), Learned::Moved);
    assert_eq!(sweep(&fdb, 131), 1);
    assert_eq!(fdb.entries(), 0);
}

#[test]
fn the_sweep_looks_only_where_it_is_told() {
    let fdb = Fdb::new(1000, 1);
    for number in 0..1000 {
        learn(&fdb, number, 0, 1);
    }
    let half = fdb.buckets() / 2;
    let first = fdb.sweep(0, half, 9);
    assert_eq!(fdb.entries(), 1000 - first);
    assert_eq!(fdb.sweep(half, usize::MAX, 9), 1000 - first);
    assert_eq!(fdb.sweep(usize::MAX, 1, 9), 0);
}

/// Two threads learn, move and look up, one ages and one removes, all on the same few addresses in a table that
/// is so full that entries are moved about. Whatever is looked up was learned of that very address.
#[test]
fn readers_never_see_what_belongs_to_another_address() {
    const ADDRESSES: u64 = 120;
    const DEADLINE: Duration = Duration::from_secs(30);
    const ROUNDS: u64 = 20_000;
    let fdb = Fdb::new(64, 2);
    // Ports of an address are congruent with it.
    let port = |number: u64, round: u64| (number + ADDRESSES * (round % 5)) as u16;
    let done = AtomicBool::new(false);
    let began = Instant::now();
    let (fdb, done) = (&fdb, &done);
    scope(|scope| {
        let learners: Vec<_> = (0..2u64)
            .map(|learner| {
                scope.spawn(move || {
                    let mut found = 0u64;
                    for round in 0..ROUNDS {
                        let now_s = (round / 1000) as u32;
                        for step in 0..8 {
                            let number = (round * 7 + step * 13 + learner) % ADDRESSES;
                            learn(fdb, number, port(number, round), now_s);
                            let other = (number * 5 + round) % ADDRESSES;
                            if let Some(port) = look_up(fdb, other, now_s) {
                                assert_eq!(u64::from(port) % ADDRESSES, other);
                                found += 1;
                            }
                        }
                        assert!(began.elapsed() < DEADLINE, "stuck in round {round}");
                    }
                    found
                })
            })
            .collect();
        let sweeper = scope.spawn(move || {
            let mut round = 0u64;
            while !done.load(Ordering::Relaxed) && began.elapsed() < DEADLINE {
                fdb.sweep(0, fdb.buckets(), (round / 100) as u32 % 25);
                fdb.remove(key(round % ADDRESSES));
                for entry in fdb.snapshot((round / 100) as u32 % 20) {
                    let number = entry.address.to_u64() & 0xffff;
                    assert_eq!(u64::from(entry.port) % ADDRESSES, number);
                }
                round += 1;
            }
        });
        let found: Vec<u64> = learners.into_iter().map(|l| l.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        sweeper.join().unwrap();
        assert!(
            found.iter().all(|found| *found > 0),
            "nothing was ever found: {found:?}"
        );
    });
    // The counts are what is there, after all these races.
    let there = fdb
        .slots(0, usize::MAX)
        .filter(|(_, slot)| slot.word() != Word::EMPTY);
    assert_eq!(fdb.entries() as usize, there.count());
    let on_ports: u32 = (0..PORTS_MAX).map(|port| fdb.learned_on(port)).sum();
    assert_eq!(fdb.entries(), on_ports);
}

/// Threads that learn the same addresses at the same time leave one entry each.
#[test]
fn addresses_learned_twice_at_once_are_there_once() {
    const ADDRESSES: u64 = 20_000;
    let fdb = Fdb::new(65_536, 300);
    scope(|scope| {
        for port in 0..2 {
            let fdb = &fdb;
            scope.spawn(move || {
                for number in 0..ADDRESSES {
                    learn(fdb, number, port, 1);
                }
            });
        }
    });
    assert_eq!(fdb.entries(), ADDRESSES as u32);
    assert_eq!(fdb.snapshot(1).count(), ADDRESSES as usize);
}
