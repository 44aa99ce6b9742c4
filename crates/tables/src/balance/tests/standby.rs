// SPDX-License-Identifier: Apache-2.0
//! Connections of an active switch on its standby: the same ones after every change.

use super::*;
use crate::changes::{Applied, ApplyError, Replicate};

fn two() -> [Backend; 2] {
    [1, 2].map(|number| backend(number, 1, BackendState::Up))
}

fn table(connections_max: u32, backends: &[Backend]) -> Balancer {
    Balancer::new(&settings(connections_max), BackendSet::new(backends)).unwrap()
}

fn active(connections_max: u32) -> Balancer {
    let mut balancer = table(connections_max, &two());
    balancer.allow_changes();
    let mut none = Vec::new();
    assert!(!balancer.take_changes((1, 1), &mut none));
    assert_eq!((none.len(), balancer.take_lost_changes()), (0, 1));
    balancer
}

fn follow(active: &mut Balancer, standby: &mut Balancer, now: u32) {
    loop {
        let mut list = Vec::new();
        let has_more = active.take_changes((2, 3), &mut list);
        for change in &list {
            standby.apply(change, now).unwrap();
        }
        if !has_more {
            return;
        }
    }
}

/// Returns the connections for a standby, page by page, in the order of the clients.
fn shared(balancer: &mut Balancer) -> Vec<SavedBalanced> {
    let (mut all, mut from) = (Vec::new(), Some(0));
    while let Some(start) = from {
        let mut list = Vec::new();
        from = balancer.share_into(start, (2, 3), &mut list);
        assert!(list.len() <= 2);
        all.extend(list.iter().map(|change| match change {
            BalancedChange::Present(saved) | BalancedChange::Ended(saved) => *saved,
        }));
    }
    all.sort_by_key(|one| one.client);
    all
}

#[derive(Clone, Debug)]
enum Step {
    Client(u32, u8),
    Backend(u32, u8),
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let flags = || prop_oneof![2 => Just(SYN), 4 => Just(ACK), 1 => Just(FIN | ACK)];
    prop_oneof![
        6 => (0..8u32, flags()).prop_map(|(number, flags)| Step::Client(number, flags)),
        4 => (0..8u32, flags()).prop_map(|(number, flags)| Step::Backend(number, flags)),
        1 => prop_oneof![1..90u32, Just(300), Just(8000)].prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_standby_has_the_connections_of_the_active_switch_after_every_change(
        steps in prop::collection::vec(step(), 1..100),
    ) {
        let (mut first, mut second) = (active(5), table(5, &two()));
        let mut now = 0;
        for step in steps {
            match step {
                Step::Client(number, flags) => {
                    // A full table refuses some.
                    let _ = first.to_backend(client(number), flags, now);
                }
                Step::Backend(number, flags) => {
                    if let Some(backend) = first.backend_of(client(number)) {
                        first.to_client(backend, client(number), flags, now);
                    }
                }
                Step::Wait(seconds) => now += seconds,
            }
            first.expire(now, usize::MAX);
            follow(&mut first, &mut second, now);
            // Packets that change no state extend timeouts.
            for saved in shared(&mut first) {
                second.apply(&BalancedChange::Present(saved), now).unwrap();
            }
            second.expire(now, usize::MAX);
            prop_assert_eq!(shared(&mut first), shared(&mut second));
            prop_assert_eq!(second.len(), shared(&mut second).len());
        }
    }

    #[test]
    fn any_record_is_refused_or_read_as_it_is_written(
        mut octets in prop::collection::vec(any::<u8>(), SAVED_BALANCED_OCTETS),
        is_plausible: bool,
    ) {
        if is_plausible {
            octets[12] %= 2;
            octets[13] = 0;
        }
        let octets: [u8; SAVED_BALANCED_OCTETS] = octets.try_into().unwrap();
        let read = SavedBalanced::<SocketAddrV4>::from_octets(&octets);
        prop_assert_eq!(read.is_some(), octets[12] < 2 && octets[13] == 0);
        if let Some(saved) = read {
            prop_assert_eq!(saved.to_octets(), octets);
        }
    }
}

#[test]
fn answers_pass_on_the_standby_and_unknown_backends_are_refused() {
    let mut first = active(10);
    let to = first.to_backend(client(1), SYN, 0).unwrap();
    assert!(first.to_client(to, client(1), SYN | ACK, 0));
    first.to_backend(client(1), ACK, 0).unwrap();
    // The standby would choose the other backend now.
    let backends = two().map(|one| match one.endpoint == to {
        true => Backend {
            state: BackendState::Draining,
            ..one
        },
        false => one,
    });
    let mut second = table(1, &backends);
    follow(&mut first, &mut second, 7);
    assert!(second.to_client(to, client(1), ACK, 8));
    assert_eq!(second.to_backend(client(1), ACK, 8), Ok(to));
    assert_eq!(
        second
            .backends()
            .iter()
            .map(|one| one.connections)
            .sum::<u64>(),
        1
    );
    let saved = |number: u32, backend: SocketAddrV4| {
        BalancedChange::Present(SavedBalanced {
            client: client(number),
            backend,
            is_closing: false,
        })
    };
    let unknown = second.apply(&saved(2, socket("10.0.0.9:8080")), 8);
    assert_eq!(unknown, Err(ApplyError::Invalid));
    assert_eq!(second.apply(&saved(2, to), 8), Err(ApplyError::Full));
    assert_eq!(second.apply(&saved(1, to), 8), Ok(Applied::Updated));
    // A closed connection gives way.
    assert!(first.to_client(to, client(1), FIN | ACK, 9));
    follow(&mut first, &mut second, 9);
    assert_eq!(second.apply(&saved(2, to), 9), Ok(Applied::Added));
    let ended = BalancedChange::Ended(SavedBalanced {
        client: client(1),
        backend: to,
        is_closing: true,
    });
    assert_eq!(second.apply(&ended, 9), Ok(Applied::Absent));
}

#[test]
fn connections_that_an_active_switch_restores_reach_its_standby() {
    let mut before = active(10);
    open(&mut before, client(1));
    let saved = shared(&mut before);
    assert_eq!(saved.len(), 1);
    let (mut first, mut second) = (active(10), table(10, &two()));
    for one in &saved {
        let applied = first.apply(&BalancedChange::Present(*one), 0);
        assert_eq!(applied, Ok(Applied::Added));
    }
    follow(&mut first, &mut second, 0);
    assert_eq!(shared(&mut second), saved);
}
