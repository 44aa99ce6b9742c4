// SPDX-License-Identifier: Apache-2.0
//! The table compared with a model, with keys that share the same four buckets, so that they use second buckets, move each other and run
//! out of space.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const AGEING_S: u32 = 10;
/// More keys than the four buckets have slots.
const KEYS: usize = 44;
const PORTS: u16 = 5;

/// Returns keys both of whose buckets are among the first four of the table.
pub(super) fn crowded_keys(fdb: &Fdb, count: usize) -> Vec<Key> {
    const CROWDED: usize = 4;
    let permutation = fdb.permutation;
    (0..1u64 << 22)
        .flat_map(|rest| (0..CROWDED).map(move |bucket| (bucket, Identity::first(rest))))
        .filter(|(bucket, identity)| permutation.other_bucket(*bucket, *identity) < CROWDED)
        .map(|(bucket, identity)| permutation.key(bucket, identity))
        // A static entry requires a unicast address.
        .filter(|key| !key.address().is_multicast())
        // 4095 is no VLAN (IEEE 802.1Q, table 9-2).
        .filter(|key| key.number() >> 48 != 4095)
        .take(count)
        .collect()
}

/// Returns a table with [`KEYS`] such keys. A few seeds yield fewer keys in the searched range; then another seed is drawn.
fn crowded_table(entries_max: u32) -> (Fdb, Vec<Key>) {
    const SEEDS: u32 = 10;
    let mut tried = 0;
    loop {
        let fdb = Fdb::new(entries_max, AGEING_S);
        let keys = crowded_keys(&fdb, KEYS);
        tried += 1;
        if keys.len() == KEYS || tried == SEEDS {
            return (fdb, keys);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Known {
    port: u16,
    observed_s: u32,
    is_static: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Learn(usize, u16, Option<u32>),
    Pass(u32),
    Sweep,
    Remove(usize),
    SetStatic(usize, u16),
    Flush(Option<u16>, Option<usize>),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS;
    let limit = prop_oneof![3 => Just(None), 1 => (0..12u32).prop_map(Some)];
    prop_oneof![
        40 => (key(), 0..PORTS, limit).prop_map(|(key, port, limit)| Step::Learn(key, port, limit)),
        1 => (1..AGEING_S + 3).prop_map(Step::Pass),
        1 => Just(Step::Sweep),
        2 => key().prop_map(Step::Remove),
        2 => (key(), 0..PORTS).prop_map(|(key, port)| Step::SetStatic(key, port)),
        1 => (prop::option::of(0..PORTS), prop::option::of(key()))
            .prop_map(|(port, key)| Step::Flush(port, key)),
    ]
}

/// Reference table without buckets.
struct Model {
    known: HashMap<Key, Known>,
    entries_max: usize,
    now_s: u32,
}

impl Model {
    fn is_over(&self, known: &Known) -> bool {
        !known.is_static && self.now_s - known.observed_s > AGEING_S
    }

    fn learn(&mut self, key: Key, port: u16, limit: u32) -> Learned {
        let before = self.known.get(&key).copied();
        let over_limit = self.learned_on(port) >= limit;
        let learned = match before {
            Some(known) if known.is_static && known.port == port => return Learned::Known,
            Some(known) if known.is_static => return Learned::Static,
            Some(known) if known.port != port && over_limit => return Learned::OverLimit,
            Some(known) if self.is_over(&known) => Learned::New,
            Some(known) if known.port != port => Learned::Moved,
            Some(_) => Learned::Known,
            None if self.known.len() >= self.entries_max => return Learned::Full,
            None if over_limit => return Learned::OverLimit,
            None => Learned::New,
        };
        let known = Known {
            port,
            observed_s: self.now_s,
            is_static: false,
        };
        self.known.insert(key, known);
        learned
    }

    fn learned_on(&self, port: u16) -> u32 {
        let learned = |known: &&Known| known.port == port && !known.is_static;
        self.known.values().filter(learned).count() as u32
    }

    fn look_up(&self, key: Key) -> Option<u16> {
        let known = self.known.get(&key)?;
        (!self.is_over(known)).then_some(known.port)
    }

    fn retain(&mut self, stays: impl Fn(&Key, &Known) -> bool) -> u32 {
        let before = self.known.len();
        self.known.retain(|key, known| stays(key, known));
        (before - self.known.len()) as u32
    }
}

/// No key is refused for lack of space in its buckets as long as they cannot both be full.
const REFUSED_FROM: usize = 2 * SLOTS;

fn take(step: Step, fdb: &Fdb, keys: &[Key], model: &mut Model) -> Result<(), TestCaseError> {
    let now = fdb.now(model.now_s);
    match step {
        Step::Learn(key, port, limit) => {
            let key = keys[key];
            let there = model.known.len();
            let limit = limit.unwrap_or(u32::MAX);
            let learned = fdb.learn(fdb.hash(key), port, now, limit);
            let expected = model.learn(key, port, limit);
            match (learned, expected) {
                (Learned::Full, Learned::New) if there >= REFUSED_FROM => {
                    model.known.remove(&key);
                }
                (Learned::Flapped, _) => prop_assert_eq!(expected, Learned::Moved),
                _ => prop_assert_eq!(learned, expected),
            }
        }
        Step::Pass(seconds) => {
            fdb.sweep(0, fdb.buckets(), model.now_s);
            sweep_model(model);
            model.now_s += seconds;
        }
        Step::Sweep => {
            let swept = fdb.sweep(0, fdb.buckets(), model.now_s);
            prop_assert_eq!(swept, sweep_model(model));
        }
        Step::Remove(key) => {
            prop_assert_eq!(
                fdb.remove(keys[key]),
                model.known.remove(&keys[key]).is_some()
            );
        }
        Step::SetStatic(key, port) => {
            let key = keys[key];
            let known = model.known.contains_key(&key);
            match fdb.set_static(key, port) {
                Ok(()) => {
                    prop_assert!(known || model.known.len() < model.entries_max);
                    let (observed_s, is_static) = (0, true);
                    model.known.insert(
                        key,
                        Known {
                            port,
                            observed_s,
                            is_static,
                        },
                    );
                }
                Err(error) => {
                    let there = model.known.len();
                    let full = there >= REFUSED_FROM || there >= model.entries_max;
                    prop_assert!(!known && full, "{}", error);
                }
            }
        }
        Step::Flush(port, key) => {
            let vlan = key.and_then(|key| keys[key].vlan());
            let flushed = fdb.flush(Selection { port, vlan });
            let expected = model.retain(|key, known| {
                known.is_static
                    || port.is_some_and(|port| port != known.port)
                    || vlan.is_some_and(|vlan| Some(vlan) != key.vlan())
            });
            prop_assert_eq!(flushed, expected);
        }
    }
    Ok(())
}

fn sweep_model(model: &mut Model) -> u32 {
    let now_s = model.now_s;
    model.retain(|_, known| known.is_static || now_s - known.observed_s <= AGEING_S)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_table_is_what_was_learned(
        entries_max in prop::sample::select(&[1000u32, 12]),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let (fdb, keys) = crowded_table(entries_max);
        prop_assert_eq!(keys.len(), KEYS);
        let mut model = Model { known: HashMap::new(), entries_max: entries_max as usize, now_s: 1 };
        for step in steps {
            take(step, &fdb, &keys, &mut model)?;
            prop_assert_eq!(fdb.entries() as usize, model.known.len());
            for port in 0..PORTS {
                prop_assert_eq!(fdb.learned_on(port), model.learned_on(port));
            }
            for key in &keys {
                let port = fdb.look_up(fdb.hash(*key), fdb.now(model.now_s));
                prop_assert_eq!(port, model.look_up(*key));
            }
        }
        let mut shown: Vec<Entry> = fdb.snapshot(model.now_s).collect();
        shown.retain(|entry| {
            let number = entry.vlan.map_or(0, VlanId::get);
            let known = &model.known[&Key::in_vlan(number, entry.address.to_u64())];
            let age_s = if known.is_static { 0 } else { model.now_s - known.observed_s };
            (entry.port, entry.age_s, entry.is_static) == (known.port, age_s, known.is_static)
        });
        let expected = model.known.values().filter(|known| !model.is_over(known)).count();
        prop_assert_eq!(shown.len(), expected);
    }
}
