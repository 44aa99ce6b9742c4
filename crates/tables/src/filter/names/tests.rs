// SPDX-License-Identifier: Apache-2.0
//! Parsers of names, and the connections that rules on names decide on.

mod connections;
mod fuzz;
mod parsers;

use super::found::{Found, Name};
use super::{NameKind, dns, http, tls};

/// Returns the result of a parser, and the name that it found.
fn parse(kind: NameKind, octets: &[u8]) -> (Found, String) {
    let mut name = Name::EMPTY;
    let found = match kind {
        NameKind::Tls => tls::find(octets, &mut name),
        NameKind::Http => http::find(octets, &mut name),
        NameKind::Dns => dns::find_in_stream(octets, &mut name),
    };
    let name = match found {
        Found::Name => String::from_utf8(name.octets().to_vec()).unwrap(),
        _ => String::new(),
    };
    (found, name)
}

/// Adds a length of this number of octets, and the octets.
fn put(to: &mut Vec<u8>, width: usize, octets: &[u8]) {
    to.extend(&octets.len().to_be_bytes()[8 - width..]);
    to.extend(octets);
}

/// Returns the extension with the server name.
fn server_name(name: &[u8]) -> Vec<u8> {
    let mut entry = vec![0];
    put(&mut entry, 2, name);
    let mut list = Vec::new();
    put(&mut list, 2, &entry);
    let mut extension = vec![0, 0];
    put(&mut extension, 2, &list);
    extension
}

/// Returns the first message of a client with these extensions.
fn message(extensions: Option<&[u8]>) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    put(&mut body, 1, &[9; 32]);
    put(&mut body, 2, &[0x13, 0x01, 0x13, 0x02]);
    put(&mut body, 1, &[0]);
    if let Some(extensions) = extensions {
        put(&mut body, 2, extensions);
    }
    let mut message = vec![1];
    put(&mut message, 3, &body);
    message
}

/// Returns a message in records of this number of octets.
fn records(message: &[u8], length: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for part in message.chunks(length) {
        all.extend([22, 3, 1]);
        put(&mut all, 2, part);
    }
    all
}

/// Returns the first data of a TLS client, with `before` octets in front of the server name.
fn hello(name: &str, before: usize) -> Vec<u8> {
    // Padding (RFC 7685).
    let mut extensions = vec![0, 21];
    put(&mut extensions, 2, &vec![0; before]);
    extensions.extend(server_name(name.as_bytes()));
    extensions.extend([0, 43, 0, 3, 2, 3, 4]);
    records(&message(Some(&extensions)), 1 << 14)
}

/// Returns a DNS query.
fn query(name: &str) -> Vec<u8> {
    let mut octets = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        put(&mut octets, 1, label.as_bytes());
    }
    octets.extend([0, 0, 1, 0, 1]);
    octets
}

/// Returns a query over TCP.
fn query_in_stream(name: &str) -> Vec<u8> {
    let mut octets = Vec::new();
    put(&mut octets, 2, &query(name));
    octets
}
