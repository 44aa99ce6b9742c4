// SPDX-License-Identifier: Apache-2.0
//! Host of the first request of an HTTP/1 client (RFC 9112, section 3). What a server may read otherwise is undecidable.

use super::found::{Found, Name};

/// Longest method, octets (IANA, HTTP Method Registry: 17).
const METHOD_MAX: usize = 24;
const CONNECT: &[u8] = b"CONNECT";
/// Start of the version.
const VERSION: &[u8] = b"HTTP/";
const SCHEMES: [&[u8]; 2] = [b"http://", b"https://"];

/// Returns true for octets of a token (RFC 9110, section 5.6.2).
const fn is_token(octet: u8) -> bool {
    octet.is_ascii_alphanumeric()
        || matches!(
            octet,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// Splits the first line, without its end. `None` if it does not end yet.
fn split_line(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = octets.iter().position(|octet| *octet == b'\n')?;
    let (line, rest) = octets.split_at_checked(end)?;
    let (_, rest) = rest.split_first()?;
    Some((line.strip_suffix(b"\r").unwrap_or(line), rest))
}

/// Splits at the first octet with this value, which is in neither part.
fn split_at(octets: &[u8], value: u8) -> Option<(&[u8], &[u8])> {
    let at = octets.iter().position(|octet| *octet == value)?;
    let (first, rest) = octets.split_at_checked(at)?;
    let (_, rest) = rest.split_first()?;
    Some((first, rest))
}

/// Finds the host in the data of a client.
pub(super) fn find(octets: &[u8], name: &mut Name) -> Found {
    // RFC 9112, section 2.2: a server ignores empty lines before a request.
    let empty = octets
        .iter()
        .take_while(|octet| matches!(octet, b'\r' | b'\n'));
    let octets = octets.get(empty.count()..).unwrap_or_default();
    let method = octets.iter().take_while(|octet| is_token(**octet)).count();
    if method > METHOD_MAX {
        return Found::Nothing;
    }
    match octets.get(method) {
        None => return Found::More,
        Some(b' ') if method > 0 => {}
        // RFC 9112, section 3: some servers accept other white space between the parts of the line, and any in front.
        Some(b' ' | b'\t' | 0x0b | 0x0c) => return Found::Undecidable,
        Some(b'\r') if method > 0 => {
            return match octets.get(method.saturating_add(1)) {
                None => Found::More,
                Some(b'\n') => Found::Nothing,
                Some(_) => Found::Undecidable,
            };
        }
        Some(_) => return Found::Nothing,
    }
    let Some((line, fields)) = split_line(octets) else {
        return Found::More;
    };
    match request(line, name) {
        Some(found) => found,
        None => host_field(fields, name),
    }
}

/// Reads the first line. `None` if the host is in a field.
fn request(line: &[u8], name: &mut Name) -> Option<Found> {
    let (method, rest) = split_at(line, b' ')?;
    let has_version = || {
        let mut parts = line.windows(VERSION.len());
        parts.any(|part| part.eq_ignore_ascii_case(VERSION))
    };
    let is_space = |octet: &u8| *octet == b' ';
    let Some(last) = rest.iter().rposition(is_space) else {
        return Some(match has_version() {
            // Other white space in front of the version.
            true => Found::Undecidable,
            // HTTP/0.9, or another protocol.
            false => Found::Nothing,
        });
    };
    let (target, version) = rest.split_at_checked(last)?;
    match version {
        b" HTTP/1.0" | b" HTTP/1.1" => {}
        // White space or lower case that some servers accept, or HTTP/2 without an upgrade (RFC 9113, section 3.4), whose names are
        // compressed.
        _ if has_version() => return Some(Found::Undecidable),
        _ => return Some(Found::Nothing),
    }
    if target.is_empty() || target.iter().any(|octet| !octet.is_ascii_graphic()) {
        return Some(Found::Undecidable);
    }
    if method == CONNECT {
        return Some(host_of_target(target, name));
    }
    // RFC 9112, section 3.2.2: the host of an absolute target counts, and not the field.
    for scheme in SCHEMES {
        if let Some((start, rest)) = target.split_at_checked(scheme.len())
            && start.eq_ignore_ascii_case(scheme)
        {
            let is_end = |octet: &u8| matches!(octet, b'/' | b'?' | b'#');
            let end = rest.iter().position(is_end).unwrap_or(rest.len());
            return Some(host_of_target(rest.get(..end).unwrap_or_default(), name));
        }
    }
    match target.first() {
        Some(b'/') => None,
        Some(b'*') if target.len() == 1 => None,
        _ => Some(Found::Undecidable),
    }
}

/// Reads fields up to the host. Each turn takes a line.
fn host_field(mut fields: &[u8], name: &mut Name) -> Found {
    while let Some((line, rest)) = split_line(fields) {
        fields = rest;
        // RFC 9112, section 2.2: servers differ in what they make of a carriage return within a line.
        if line.contains(&b'\r') {
            return Found::Undecidable;
        }
        if line.is_empty() {
            return Found::Nothing;
        }
        let Some((field, value)) = split_at(line, b':') else {
            return Found::Undecidable;
        };
        // That includes lines that continue the one before (RFC 9112, section 5.2) and spaces before the colon (section 5.1).
        if field.is_empty() || !field.iter().all(|octet| is_token(*octet)) {
            return Found::Undecidable;
        }
        if field.eq_ignore_ascii_case(b"host") {
            let value = value.trim_ascii();
            return match fields.first() {
                None if value.is_empty() => Found::More,
                // The next line continues this one (RFC 9112, section 5.2).
                Some(b' ' | b'\t') if value.is_empty() => Found::Undecidable,
                _ => host(value, name),
            };
        }
    }
    Found::More
}

/// Reads the host of a target, which may not be empty (RFC 9110, section 4.2.1).
fn host_of_target(value: &[u8], name: &mut Name) -> Found {
    match host(value, name) {
        Found::Nothing => Found::Undecidable,
        found => found,
    }
}

/// Reads a host with or without a port.
fn host(value: &[u8], name: &mut Name) -> Found {
    let port = |rest: &[u8]| match rest.split_first() {
        None => true,
        Some((b':', digits)) => digits.iter().all(u8::is_ascii_digit),
        Some(_) => false,
    };
    *name = Name::EMPTY;
    let is_literal = value.starts_with(b"[");
    let is_end = |octet: &u8| match is_literal {
        true => *octet == b']',
        false => *octet == b':',
    };
    let end = value.iter().position(is_end).unwrap_or(value.len());
    let end = match is_literal {
        true => end.saturating_add(1).min(value.len()),
        false => end,
    };
    let (host, rest) = value.split_at_checked(end).unwrap_or_default();
    let is_allowed = |octet: &u8| {
        octet.is_ascii_alphanumeric()
            || matches!(octet, b'-' | b'.' | b'_')
            || (is_literal && matches!(octet, b'[' | b']' | b':'))
    };
    if value.is_empty() {
        // RFC 9110, section 7.2: a target without a host.
        return Found::Nothing;
    }
    if !port(rest) || !host.iter().all(is_allowed) || !name.extend(host) {
        return Found::Undecidable;
    }
    name.remove_root();
    match name.is_empty() {
        true => Found::Undecidable,
        false => Found::Name,
    }
}
