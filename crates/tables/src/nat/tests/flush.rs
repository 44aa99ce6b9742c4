// SPDX-License-Identifier: Apache-2.0
//! Mappings that are removed by request.

use super::*;

const REMOTE: &str = "192.0.2.1:53";

fn flushed(nat: &mut Nat, matches: impl Fn(&MappingInfo) -> bool) -> usize {
    let (mut sum, mut from) = (0, Some(0));
    while let Some(position) = from {
        let (removed, next) = nat.flush(&matches, position, 100);
        assert!(next.is_none_or(|next| next > position));
        sum += removed;
        from = next;
    }
    sum
}

#[test]
fn matching_mappings_end_and_others_stay() {
    let forward = Forward {
        protocol: NatProtocol::Udp,
        external: socket("198.51.100.1:53"),
        internal: socket("10.0.0.1:53"),
    };
    let mut nat = Nat::new(&NatSettings {
        forwards: vec![forward],
        ..settings()
    })
    .unwrap();
    let mut known = Vec::new();
    for host in 1..=3 {
        for port in 1..=4 {
            let source = format!("10.0.0.{host}:{port}");
            known.push((host, external(&mut nat, &source, REMOTE, Content::Udp(1))));
        }
    }
    let _ = nat.take_events().count();
    let host = Ipv4Addr::new(10, 0, 0, 2);
    assert_eq!(flushed(&mut nat, |one| *one.internal.ip() == host), 4);
    for (host, external) in &known {
        let answer = packet(socket(REMOTE), *external, Content::Udp(1));
        assert_eq!(inbound(&mut nat, &answer, 0).is_ok(), *host != 2);
    }
    // Its ports are free again.
    let returned: Vec<BlockEvent> = blocks(&mut nat).collect();
    assert!(
        returned
            .iter()
            .all(|one| !one.is_assigned && one.host == host)
    );
    assert_eq!((returned.len(), nat.hosts(), nat.len()), (1, 2, 9));
    // All but the forward.
    assert_eq!(flushed(&mut nat, |_| false), 0);
    assert_eq!(flushed(&mut nat, |_| true), 8);
    assert_eq!((nat.hosts(), nat.len(), nat.forwards()), (0, 1, 1));
    let request = packet(socket(REMOTE), forward.external, Content::Udp(1));
    let received = inbound(&mut nat, &request, 0).unwrap();
    assert_eq!(ends(&received).1, forward.internal);
    assert_eq!(nat.counters().expired, 0);
}
