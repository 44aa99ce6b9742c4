// SPDX-License-Identifier: Apache-2.0
//! Parsers: names that are found, messages without names, and octets that are undecidable.

use proptest::prelude::*;

use super::*;

fn name(text: &str) -> (Found, String) {
    (Found::Name, text.to_owned())
}

/// Checks a result, and that every start of the octets leads to the same result or to none yet.
fn expect(kind: NameKind, octets: &[u8], expected: &(Found, String)) {
    assert_eq!(&parse(kind, octets), expected, "{octets:?}");
    for end in 0..octets.len() {
        let found = parse(kind, &octets[..end]);
        assert!(
            found.0 == Found::More || found == *expected,
            "{end} of {octets:?}: {found:?}"
        );
    }
}

#[test]
fn server_names_are_found_in_one_record_and_in_several() {
    let server = server_name(b"WWW.Example.org");
    let expected = name("www.example.org");
    for length in [1, 2, 3, 5, 40, 4096] {
        let octets = records(&message(Some(&server)), length);
        expect(NameKind::Tls, &octets, &expected);
    }
    expect(NameKind::Tls, &hello("a.example", 3000), &name("a.example"));
    let longest = "a".repeat(253);
    expect(NameKind::Tls, &hello(&longest, 0), &name(&longest));
}

#[test]
fn messages_without_a_server_name_differ_from_wrong_ones() {
    let nothing = (Found::Nothing, String::new());
    let undecidable = (Found::Undecidable, String::new());
    let plain = |message: &[u8]| records(message, 4096);
    let extensions = |extensions: &[u8]| plain(&message(Some(extensions)));
    // Another protocol; no extensions; no extension with a name.
    expect(NameKind::Tls, b"SSH-2.0-x\r\n", &nothing);
    expect(NameKind::Tls, &plain(&message(None)), &nothing);
    expect(
        NameKind::Tls,
        &extensions(&[0, 43, 0, 3, 2, 3, 4]),
        &nothing,
    );
    // Octets that are no record.
    expect(NameKind::Tls, &[21, 2, 0, 0, 2], &nothing);
    // A message that is no client's first; a warning in front of it, which some servers ignore; a record without octets; a record of
    // another version; one that is too long.
    expect(NameKind::Tls, &plain(&[2, 0, 0, 1, 0]), &undecidable);
    let warning = [&[21, 3, 1, 0, 2, 1, 90][..], &hello("a.example", 0)].concat();
    expect(NameKind::Tls, &warning, &undecidable);
    expect(NameKind::Tls, &[22, 3, 1, 0, 0, 1], &undecidable);
    expect(NameKind::Tls, &[22, 2, 0, 0, 5, 1], &undecidable);
    expect(NameKind::Tls, &[22, 3, 1, 0x40, 1, 1], &undecidable);
    // Lengths that contradict each other.
    let whole = message(Some(&server_name(b"a.example")));
    for at in [1, 2, 3, 38, 71, 72] {
        let mut changed = whole.clone();
        changed[at] = 0xff;
        let found = parse(NameKind::Tls, &plain(&changed));
        assert!(matches!(found.0, Found::Undecidable | Found::More), "{at}");
    }
    // A session of 33 octets, an empty list, two names, a name that is no host, an empty name, and one with a space.
    let mut session = whole.clone();
    session[38] = 33;
    expect(NameKind::Tls, &plain(&session), &undecidable);
    expect(
        NameKind::Tls,
        &extensions(&[0, 0, 0, 2, 0, 0]),
        &undecidable,
    );
    let two = [0, 0, 0, 10, 0, 8, 0, 0, 1, b'a', 0, 0, 1, b'b'];
    expect(NameKind::Tls, &extensions(&two), &undecidable);
    let other = [0, 0, 0, 6, 0, 4, 1, 0, 1, b'a'];
    expect(NameKind::Tls, &extensions(&other), &undecidable);
    for wrong in ["", ".", "a b", "a\u{e4}", "a".repeat(254).as_str()] {
        let octets = extensions(&server_name(wrong.as_bytes()));
        expect(NameKind::Tls, &octets, &undecidable);
    }
}

#[test]
fn hosts_are_found_in_fields_and_in_targets() {
    for (text, host) in [
        (
            "GET / HTTP/1.1\r\nHost: www.example.org\r\n\r\n",
            "www.example.org",
        ),
        (
            "GET / HTTP/1.1\nhost:www.example.org\n\n",
            "www.example.org",
        ),
        (
            "POST /a HTTP/1.0\r\nA: b:c\r\nHOST: Example.org.:8080 \r\n",
            "example.org",
        ),
        ("\r\n\r\nOPTIONS * HTTP/1.1\r\nHost: a\r\n", "a"),
        (
            "GET http://a.example/x HTTP/1.1\r\nHost: b.example\r\n",
            "a.example",
        ),
        (
            "GET HTTPS://A.example?x HTTP/1.1\r\nHost: b.example\r\n",
            "a.example",
        ),
        ("CONNECT c.example:443 HTTP/1.1\r\n", "c.example"),
        (
            "GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n",
            "[2001:db8::1]",
        ),
        ("GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n", "192.0.2.1"),
    ] {
        expect(NameKind::Http, text.as_bytes(), &name(host));
    }
}

#[test]
fn requests_without_a_host_differ_from_those_that_servers_may_read_otherwise() {
    for text in [
        "GET / HTTP/1.0\r\nA: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: \r\nA: b\r\n\r\n",
        "GET /\r\n",
        "SSH-2.0-OpenSSH_9.6p1 Debian\r\n",
        "QUIT\r\n",
        "\u{16}\u{3}\u{1}",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ / HTTP/1.1\r\n",
    ] {
        expect(
            NameKind::Http,
            text.as_bytes(),
            &(Found::Nothing, String::new()),
        );
    }
    for text in [
        " GET / HTTP/1.1\r\n",
        "\tGET / HTTP/1.1\r\n",
        "GET\t/ HTTP/1.1\r\n",
        "GET /\tHTTP/1.1\r\n",
        "GET /\rHTTP/1.1\r\n",
        "GET / http/1.1\r\n",
        "GET\r/ HTTP/1.1\r\n",
        "GET /a b HTTP/1.1\r\n",
        "GET / HTTP/1.1 \r\n",
        "GET / HTTP/3.0\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET ftp://a.example/ HTTP/1.1\r\n",
        "GET http:///x HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\n Host: a.example\r\n",
        "GET / HTTP/1.1\r\nHost : a.example\r\n",
        "GET / HTTP/1.1\r\nHost\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n a.example\r\n",
        "GET / HTTP/1.1\r\nHost:\n\ta.example\r\n",
        "GET / HTTP/1.1\r\nA: b\rHost: a.example\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n",
        "GET / HTTP/1.1\r\nHost: a.example@b.example\r\n",
        "GET / HTTP/1.1\r\nHost: %61.example\r\n",
        "GET / HTTP/1.1\r\nHost: a.example:80:80\r\n",
        "GET / HTTP/1.1\r\nHost: [::1]x\r\n",
        "GET / HTTP/1.1\r\nHost: .\r\n",
    ] {
        expect(
            NameKind::Http,
            text.as_bytes(),
            &(Found::Undecidable, String::new()),
        );
    }
}

#[test]
fn names_of_queries_are_found() {
    for text in ["www.example.org", "A.example", "a.".repeat(126).as_str()] {
        let wanted = text.trim_end_matches('.').to_ascii_lowercase();
        expect(NameKind::Dns, &query_in_stream(text), &name(&wanted));
    }
    let found = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut octets = query("a.example");
        change(&mut octets);
        let mut name = Name::EMPTY;
        dns::find(&octets, &mut name)
    };
    assert_eq!(found(&|_| {}), Found::Name);
    // A response, an update, a query for the root, and one without a question.
    assert_eq!(found(&|octets| octets[2] |= 0x80), Found::Nothing);
    assert_eq!(found(&|octets| octets[2] |= 5 << 3), Found::Nothing);
    assert_eq!(found(&|octets| octets[12] = 0), Found::Nothing);
    assert_eq!(found(&|octets| octets[5] = 0), Found::Nothing);
    // Two questions, a pointer, a label type that does not exist, a dot within a label, an octet that is not printable, a long name.
    assert_eq!(found(&|octets| octets[5] = 2), Found::Undecidable);
    assert_eq!(found(&|octets| octets[12] = 0xc0), Found::Undecidable);
    assert_eq!(found(&|octets| octets[14] = 0x40), Found::Undecidable);
    assert_eq!(found(&|octets| octets[13] = b'.'), Found::Undecidable);
    assert_eq!(found(&|octets| octets[13] = 0), Found::Undecidable);
    let long = |octets: &mut Vec<u8>| *octets = query(&"a.".repeat(128));
    assert_eq!(found(&long), Found::Undecidable);
    // A message that ends within the name: more may follow in a stream, unless its length says that it is whole.
    assert_eq!(found(&|octets| octets.truncate(15)), Found::More);
    let mut short = Vec::new();
    put(&mut short, 2, &query("a.example")[..15]);
    assert_eq!(parse(NameKind::Dns, &short).0, Found::Undecidable);
}

/// The first octets of a client, with some changed.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let start = prop_oneof![
        (0usize..200).prop_map(|before| hello("www.example.org", before)),
        (1usize..60)
            .prop_map(|length| { records(&message(Some(&server_name(b"a.example"))), length) }),
        Just(b"GET / HTTP/1.1\r\nA: b\r\nHost: www.example.org:80\r\n\r\n".to_vec()),
        Just(b"\r\nGET http://a.example/ HTTP/1.1\r\n\r\n".to_vec()),
        Just(query_in_stream("a.b.example")),
    ];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (start, changes).prop_map(|(mut octets, changes)| {
        for (place, octet) in changes {
            let place = place.index(octets.len());
            octets[place] = octet;
        }
        octets
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn further_octets_never_change_a_result(octets in stream()) {
        for kind in NameKind::ALL {
            let mut former = (Found::More, String::new());
            for end in 0..=octets.len() {
                let found = parse(kind, &octets[..end]);
                if former.0 != Found::More {
                    prop_assert_eq!(&found, &former, "{:?} {}", kind, end);
                }
                former = found;
            }
        }
    }
}
