// SPDX-License-Identifier: Apache-2.0
//! Illegal traffic and fragmented datagrams beside conversations.

use super::super::methods::{ConversationLoad, ConversationRun};
use super::*;

const ILLEGAL: &str = "\n[connections.illegal]\nrate = 1000.0\n";
const FRAGMENTS: &str = "\n[connections.fragments]\nrate = 500.0\nfragments = 3\noctets = 64\n";
/// Offset of the source address of an IPv4 frame, and of its fragment field.
const SOURCE: usize = 26;
const FRAGMENT: usize = 20;

fn is_illegal(frame: &[u8]) -> bool {
    frame[SOURCE..SOURCE + 3] == [198, 19, 200]
}

/// Returns the offset of a fragment, in units of 8 octets; `None` for a frame without fragments.
fn offset(frame: &[u8]) -> Option<u16> {
    let field = u16::from_be_bytes([frame[FRAGMENT], frame[FRAGMENT + 1]]);
    (field & 0x3fff != 0).then_some(field & 0x1fff)
}

#[test]
fn traffic_beside_the_conversations_is_counted_apart() {
    let text = of_mix("rate = 200.0") + ILLEGAL + FRAGMENTS;
    let result = run(&text, &mut Network::new(1, Faults::default()));
    let illegal = result.illegal.unwrap();
    // This network has no rule.
    let counts = (illegal.scheduled, illegal.sent, illegal.forwarded);
    assert_eq!(counts, (1000, 1000, Some(1000)));
    let fragments = result.fragments.unwrap();
    assert_eq!((fragments.sent, fragments.sent_fragments), (500, 1500));
    let expected = ArrivedFragments {
        fragments: 1500,
        complete: 500,
        ..ArrivedFragments::default()
    };
    assert_eq!((fragments.arrived, fragments.lost()), (Some(expected), 0));
    let (client, server) = (result.client.unwrap(), result.server.unwrap());
    assert_eq!((client.completed, client.opened), (200, 200));
    assert_eq!(server.accepted, client.mix[0].opened);
    assert_eq!(client.tcp, TcpResult::default());
    assert_eq!(server.tcp, TcpResult::default());
    assert_eq!(result.validity, Validity::Valid);
}

#[test]
fn traffic_beside_conversations_over_ipv6_is_counted_too() {
    let ends = "[connections.client]\naddress = \"2001:db8::1\"\n\
                [connections.server]\naddress = \"2001:db8:1::1\"\n";
    let text = format!("[connections]\nrate = 100.0\n{ends}{ILLEGAL}{FRAGMENTS}");
    let result = run(&text, &mut Network::new(1, Faults::default()));
    assert_eq!(result.illegal.unwrap().forwarded, Some(1000));
    let fragments = result.fragments.unwrap();
    assert_eq!((fragments.sent, fragments.lost()), (500, 0));
    let arrived = fragments.arrived.unwrap();
    assert_eq!((arrived.fragments, arrived.damaged), (1500, 0));
    assert_eq!(result.client.unwrap().completed, 100);
}

#[test]
fn a_device_with_a_rule_and_without_later_fragments_is_described() {
    let description = description(&format!(
        "[connections]\nrate = 100.0\n{ILLEGAL}{FRAGMENTS}"
    ));
    let (mut others, mut later) = (0, 0);
    let result = run_through(&description, 1.0, move |frame| {
        if is_illegal(frame) {
            // It forgets its rule now and then.
            others += 1;
            return match others % 100 {
                0 => Delivery::Forward,
                _ => Delivery::Drop,
            };
        }
        match offset(frame) {
            Some(0) | None => Delivery::Forward,
            Some(_) => {
                later += 1;
                match later % 10 {
                    0 => Delivery::Drop,
                    1 => {
                        // The last octet of data.
                        frame[14 + 20 + 63] ^= 1;
                        Delivery::Forward
                    }
                    _ => Delivery::Forward,
                }
            }
        }
    });
    assert_eq!(result.illegal.unwrap().forwarded, Some(10));
    let fragments = result.fragments.unwrap();
    let arrived = fragments.arrived.unwrap();
    // A thousand later fragments: of ten, which five datagrams have, one is lost and one damaged.
    assert_eq!((arrived.fragments, arrived.damaged), (1400, 100));
    assert_eq!((arrived.complete, fragments.lost()), (300, 200));
    let client = result.client.unwrap();
    assert_eq!((client.opened, client.completed), (100, 100));
}

#[test]
fn methods_fail_if_a_device_forwards_what_is_illegal_or_loses_fragments() {
    let description = description(&format!("[connections]\n{ILLEGAL}{FRAGMENTS}"));
    let run = ConversationRun {
        description,
        load: ConversationLoad::Connections { per_s: 2_000.0 },
        duration_s: 0.5,
        drain_s: 2.0,
        pause_s: 0.0,
        answer: None,
    };
    let outcome = |drops_illegal: bool, drops_later: bool| {
        let prepared = run.prepare().unwrap();
        let result = run_through(&prepared.description, prepared.opening_s, move |frame| {
            let is_later = offset(frame).is_some_and(|offset| offset > 0);
            match (is_illegal(frame) && drops_illegal) || (is_later && drops_later) {
                true => Delivery::Drop,
                false => Delivery::Forward,
            }
        });
        run.outcome(&prepared, &result)
    };
    let good = outcome(true, false);
    assert_eq!((good.attempted, good.failed), (1_000, 0), "{good:?}");
    let leaky = outcome(false, false);
    assert_eq!(leaky.causes["illegal_forwarded"], 500);
    assert_eq!(leaky.failed, 500);
    let lossy = outcome(true, true);
    assert_eq!(lossy.causes["fragmented_lost"], 250);
    assert_eq!(lossy.failed, 250);
}
