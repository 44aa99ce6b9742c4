// SPDX-License-Identifier: Apache-2.0
//! Many threads on the same few slots: learning, looking up, ageing, removing, and setting static entries.

use std::collections::HashSet;

use super::model::crowded_keys;
use super::*;

const KEYS: usize = 40;
const STATICS: usize = 4;
const ROUNDS: u64 = 15_000;
const DEADLINE: Duration = Duration::from_secs(60);

/// Returns a port congruent with the number of the key.
fn port(key: usize, round: u64) -> u16 {
    (key as u64 + KEYS as u64 * (round % 5)) as u16
}

/// Learns and looks up. Returns the number of successful look-ups.
fn forward(fdb: &Fdb, keys: &[Key], thread: u64, began: Instant) -> u64 {
    let mut found = 0;
    for round in 0..ROUNDS {
        assert!(began.elapsed() < DEADLINE, "stuck in round {round}");
        let now = fdb.now((round / 1000) as u32);
        for step in 0..8 {
            let number = ((round * 7 + step * 13 + thread) % KEYS as u64) as usize;
            fdb.learn(fdb.hash(keys[number]), port(number, round), now, u32::MAX);
            let other = (number * 5 + round as usize) % KEYS;
            if let Some(port) = fdb.look_up(fdb.hash(keys[other]), now) {
                assert_eq!(usize::from(port) % KEYS, other);
                found += 1;
            }
        }
        for (number, key) in keys.iter().enumerate().take(STATICS) {
            let port = fdb.look_up(fdb.hash(*key), now);
            assert_eq!(port.map(usize::from), Some(number), "a static entry moved");
        }
    }
    found
}

fn age_and_remove(fdb: &Fdb, keys: &[Key], done: &AtomicBool, began: Instant) {
    let mut round = 0u64;
    while !done.load(Ordering::Relaxed) && began.elapsed() < DEADLINE {
        let now_s = (round / 100) as u32 % 20;
        fdb.sweep(0, 4, now_s);
        let number = STATICS + (round % (KEYS - STATICS) as u64) as usize;
        fdb.remove(keys[number]);
        // A static entry that is set and removed while others learn the same address.
        let last = KEYS - 1;
        if fdb.set_static(keys[last], port(last, round)).is_ok() {
            fdb.remove(keys[last]);
        }
        round += 1;
    }
}

#[test]
fn counts_and_static_entries_survive_every_race() {
    let fdb = Fdb::new(64, 2);
    let keys = crowded_keys(&fdb, KEYS);
    for (number, key) in keys.iter().enumerate().take(STATICS) {
        fdb.set_static(*key, number as u16).unwrap();
    }
    let done = AtomicBool::new(false);
    let began = Instant::now();
    scope(|scope| {
        let (fdb, keys, done) = (&fdb, &keys[..], &done);
        let forwarders: Vec<_> = (0..3)
            .map(|thread| scope.spawn(move || forward(fdb, keys, thread, began)))
            .collect();
        let ager = scope.spawn(move || age_and_remove(fdb, keys, done, began));
        let found: Vec<u64> = forwarders
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        done.store(true, Ordering::Relaxed);
        ager.join().unwrap();
        assert!(found.iter().all(|found| *found > 0), "{found:?}");
    });
    let there: Vec<(Key, Word)> = fdb
        .slots(0, usize::MAX)
        .map(|(bucket, slot)| (bucket, slot.word()))
        .filter(|(_, word)| *word != Word::EMPTY)
        .map(|(bucket, word)| (fdb.permutation.key(bucket, word.identity()), word))
        .collect();
    assert_eq!(fdb.entries() as usize, there.len());
    let learned = there.iter().filter(|(_, word)| !word.is_static()).count();
    let on_ports: u32 = (0..PORTS_MAX).map(|port| fdb.learned_on(port)).sum();
    assert_eq!(on_ports as usize, learned);
    let known: HashSet<Key> = keys.iter().copied().collect();
    assert!(there.iter().all(|(key, _)| known.contains(key)));
    let different: HashSet<Key> = there.iter().map(|(key, _)| *key).collect();
    assert_eq!(
        different.len(),
        there.len(),
        "duplicate entry of an address"
    );
}
