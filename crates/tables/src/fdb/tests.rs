// SPDX-License-Identifier: Apache-2.0

mod concurrent;
mod loom;
mod model;

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
fn an_address_is_refreshed_on_its_port_only() {
    let fdb = Fdb::new(16, 10);
    let refresh = |number, port, now_s| fdb.refresh(fdb.hash(key(number)), port, fdb.now(now_s));
    learn(&fdb, 1, 3, 100);
    learn(&fdb, 2, 3, 100);
    fdb.set_static(key(4), 3).unwrap();
    assert!(refresh(1, 3, 108) && refresh(1, 3, 108));
    assert!(!refresh(2, 4, 108) && !refresh(5, 3, 108));
    assert!(refresh(4, 3, 108) && !refresh(4, 4, 108));
    assert_eq!(look_up(&fdb, 1, 118), Some(3));
    assert_eq!(look_up(&fdb, 2, 118), None);
    assert_eq!(
        (look_up(&fdb, 4, 118), look_up(&fdb, 5, 118)),
        (Some(3), None)
    );
    assert_eq!(sweep(&fdb, 118), 1);
    assert_eq!(fdb.learned_on(3), 1);
    // Parts of the table make up the whole.
    let parts = (0..fdb.buckets()).flat_map(|bucket| fdb.snapshot_of(bucket, 1, 118));
    assert_eq!(parts.count(), fdb.snapshot(118).count());
}

#[test]
fn entries_age_from_their_last_frame() {
    let fdb = Fdb::new(16, 10);
    learn(&fdb, 1, 1, 100);
    learn(&fdb, 2, 1, 100);
    assert_eq!(learn(&fdb, 2, 1, 105), Learned::Known);
    assert_eq!(look_up(&fdb, 1, 110), Some(1));
    assert_eq!(sweep(&fdb, 110), 0);
    // No look-up returns an aged entry, swept or not.
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
fn the_sweep_looks_only_where_it_is_reported() {
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

/// Two threads learn, move and look up, one ages and one removes, all on the same few addresses in a table so full that entries are moved.
/// Every look-up result was learned of that very address.
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
            "no look-up succeeded: {found:?}"
        );
    });
    // After all these races, the counts match the entries.
    let there = fdb
        .slots(0, usize::MAX)
        .filter(|(_, slot)| slot.word() != Word::EMPTY);
    assert_eq!(fdb.entries() as usize, there.count());
    let on_ports: u32 = (0..PORTS_MAX).map(|port| fdb.learned_on(port)).sum();
    assert_eq!(fdb.entries(), on_ports);
}

/// Threads that learn the same addresses at the same time leave one entry each.
#[test]
fn addresses_learned_by_two_threads_have_one_entry() {
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

#[test]
fn addresses_that_move_too_often_are_listed() {
    let limit = FlapLimit {
        moves: 3,
        window_s: 20,
    };
    let fdb = Fdb::with_flap_limit(64, 300, limit);
    learn(&fdb, 1, 0, 100);
    for round in 1..=3 {
        assert_eq!(learn(&fdb, 1, round % 2, 100), Learned::Moved);
    }
    assert_eq!(fdb.flapping(100).count(), 0);
    assert_eq!(learn(&fdb, 1, 0, 110), Learned::Flapped);
    assert_eq!(learn(&fdb, 1, 1, 112), Learned::Flapped);
    let flapping = Flapping {
        address: key(1).address(),
        vlan: None,
        moves: 5,
        since_s: 15,
    };
    assert_eq!(fdb.flapping(115).collect::<Vec<_>>(), [flapping]);
    // A new window begins.
    assert_eq!(fdb.flapping(121).count(), 0);
    assert_eq!(learn(&fdb, 1, 0, 121), Learned::Moved);
}

#[test]
fn a_port_has_no_more_than_it_may() {
    let fdb = Fdb::new(64, 10);
    let learn = |number, port, limit| fdb.learn(fdb.hash(key(number)), port, fdb.now(5), limit);
    assert_eq!(learn(1, 0, 2), Learned::New);
    assert_eq!(learn(2, 0, 2), Learned::New);
    assert_eq!(learn(3, 0, 2), Learned::OverLimit);
    assert_eq!(learn(2, 0, 2), Learned::Known);
    assert_eq!(learn(4, 1, 2), Learned::New);
    // It cannot move there either, and its entry stays unchanged.
    assert_eq!(learn(4, 0, 2), Learned::OverLimit);
    assert_eq!(look_up(&fdb, 4, 5), Some(1));
    assert_eq!(learn(1, 1, 2), Learned::Moved);
    assert_eq!(learn(3, 0, 2), Learned::New);
    assert_eq!((fdb.learned_on(0), fdb.learned_on(1)), (2, 2));
    assert_eq!(fdb.set_static(key(3), 1), Ok(()));
    assert_eq!((fdb.learned_on(0), fdb.learned_on(1)), (1, 2));
}

#[test]
fn invalid_static_entries_are_refused() {
    let fdb = Fdb::new(1, 10);
    let group = MacAddress([1, 0, 0x5e, 0, 0, 1]);
    assert_eq!(
        fdb.set_static(Key::of(group), 0),
        Err(StaticError::Group(group))
    );
    assert_eq!(
        fdb.set_static(key(1), PORTS_MAX),
        Err(StaticError::Port(PORTS_MAX))
    );
    assert_eq!(fdb.set_static(key(1), 3), Ok(()));
    assert_eq!(fdb.set_static(key(1), 4), Ok(()));
    assert_eq!(look_up(&fdb, 1, 500), Some(4));
    let full = fdb.set_static(key(2), 3).unwrap_err().to_string();
    assert!(full.contains("full with 1 addresses"), "{full}");
    assert_eq!(learn(&fdb, 1, 4, 5), Learned::Known);
    assert_eq!(learn(&fdb, 1, 5, 5), Learned::Static);
    assert!(fdb.remove(key(1)));
    assert_eq!(learn(&fdb, 2, 5, 5), Learned::New);
}
