// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: the data of a client, in segments of a length. Segments lead to the result of the whole data.

use std::cell::RefCell;

use quietwire_base::fuzz::{check, planted};

use super::connections::{ACK, SYN, allow_list, client, passes};
use super::*;
use crate::filter::{NAME_DATA_MAX, NameFlows, PortRules};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
/// Segments that are searched, but for the last one.
const SEGMENTS: usize = 15;

thread_local! {
    /// Rules and memory for all inputs: the SYN of each begins a new connection.
    static WORLD: RefCell<(PortRules, NameFlows)> =
        RefCell::new((allow_list("closed"), NameFlows::new().unwrap()));
}

/// Returns true if a name is found.
fn fuzz_payload(octets: &[u8]) -> bool {
    let Some((length, data)) = octets.split_first() else {
        return false;
    };
    let data = &data[..data.len().min(NAME_DATA_MAX)];
    let results = NameKind::ALL.map(|kind| parse(kind, data));
    for (kind, result) in NameKind::ALL.into_iter().zip(&results) {
        let half = parse(kind, &data[..data.len() / 2]);
        assert!(half.0 == Found::More || half == *result, "{kind:?}");
    }
    let (found, name) = &results[NameKind::Tls as usize];
    let is_allowed = name == "example.org" || name.ends_with(".example.org");
    let size = usize::from(*length)
        .max(data.len().div_ceil(SEGMENTS))
        .max(1);
    let segment = client(1);
    let (mut sequence, mut passed) = (100, true);
    WORLD.with_borrow_mut(|(rules, flows)| {
        passes(rules, flows, &segment(99, SYN, &[]));
        for part in data.chunks(size) {
            passed = passes(rules, flows, &segment(sequence, ACK, part));
            sequence += u32::try_from(part.len()).unwrap();
        }
    });
    let expected = match found {
        Found::More => true,
        Found::Name => is_allowed,
        Found::Nothing | Found::Undecidable => false,
    };
    assert_eq!(passed, expected, "{found:?} {name}");
    planted("tables-payload", || {
        *found == Found::Name && name.contains('q')
    });
    results.iter().any(|(found, _)| *found == Found::Name)
}

#[test]
fn payload() {
    check(CRATE, "tables-payload", fuzz_payload);
}
