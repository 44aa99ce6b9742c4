// SPDX-License-Identifier: Apache-2.0
//! Endpoints that lines of an FTP control connection announce.

use std::net::{IpAddr, Ipv4Addr};

/// Octets of a line, at most.
const LINE_MAX: usize = 256;
/// Digits of an octet in decimal, at most.
const DIGITS_MAX: usize = 3;
/// Characters that separate fields (RFC 2428, section 2).
const DELIMITERS: std::ops::RangeInclusive<u8> = 33..=126;

/// An announced endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    /// Its address; `None` for that of the control connection.
    pub(super) address: Option<IpAddr>,
    pub(super) port: u16,
}

/// Returns the endpoint at which a client accepts a data connection: PORT (RFC 959, section 4.1.2) or EPRT (RFC 2428, section 2) as the first
/// line of the data.
pub(super) fn of_client(data: &[u8]) -> Option<Announced> {
    let line = first_line(data)?;
    if let Some(text) = behind(line, b"PORT ") {
        let (announced, rest) = host_port(text)?;
        return rest.is_empty().then_some(announced);
    }
    let [family, address, port] = fields(behind(line, b"EPRT ")?)?;
    let address: IpAddr = parsed(address)?;
    let is_family = match address {
        IpAddr::V4(_) => family == b"1",
        IpAddr::V6(_) => family == b"2",
    };
    let port = parsed(port)?;
    is_family.then_some(Announced {
        address: Some(address),
        port,
    })
}

/// Returns the endpoint at which a server accepts a data connection: reply 227 (RFC 959, section 4.1.2) or 229 (RFC 2428, section 3) as the
/// first line of the data.
pub(super) fn of_server(data: &[u8]) -> Option<Announced> {
    let line = first_line(data)?;
    if let Some(text) = behind(line, b"227 ") {
        // RFC 1123, section 4.1.2.6: the text and the parentheses around the numbers differ among servers.
        let at = text.iter().position(u8::is_ascii_digit)?;
        return host_port(text.get(at..)?).map(|(announced, _)| announced);
    }
    let text = behind(line, b"229 ")?;
    let before = text.iter().position(|octet| *octet == b'(')?;
    let first = before.saturating_add(1);
    let last = text.iter().rposition(|octet| *octet == b')')?;
    let [family, address, port] = fields(text.get(first..last)?)?;
    if !family.is_empty() || !address.is_empty() {
        return None;
    }
    Some(Announced {
        address: None,
        port: parsed(port)?,
    })
}

/// Returns the first line of data, without its end. `None` if it is not complete.
fn first_line(data: &[u8]) -> Option<&[u8]> {
    let end = data.iter().take(LINE_MAX).position(|one| *one == b'\n')?;
    let line = data.get(..end)?;
    Some(line.strip_suffix(b"\r").unwrap_or(line))
}

/// Returns the part of a line behind its start, in upper or lower case.
fn behind<'a>(line: &'a [u8], start: &[u8]) -> Option<&'a [u8]> {
    let (found, rest) = line.split_at_checked(start.len())?;
    found.eq_ignore_ascii_case(start).then_some(rest)
}

/// Returns the number or address that a text consists of.
fn parsed<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns the endpoint at the start of a text, four octets of the address and two of the port in decimal, and the text behind it.
fn host_port(text: &[u8]) -> Option<(Announced, &[u8])> {
    let mut numbers = [0u8; 6];
    let mut rest = text;
    for (at, number) in numbers.iter_mut().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix(b",")?;
        }
        let digits = rest.iter().take(DIGITS_MAX);
        let count = digits.take_while(|octet| octet.is_ascii_digit()).count();
        let (digits, others) = rest.split_at_checked(count)?;
        *number = parsed(digits)?;
        rest = others;
    }
    let [a, b, c, d, high, low] = numbers;
    let announced = Announced {
        address: Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
        port: u16::from_be_bytes([high, low]),
    };
    Some((announced, rest))
}

/// Returns the three fields of a text that begins and ends with a delimiter, with delimiters between them.
fn fields(text: &[u8]) -> Option<[&[u8]; 3]> {
    let (delimiter, rest) = text.split_first()?;
    let rest = rest.strip_suffix(std::slice::from_ref(delimiter))?;
    let mut fields = rest.split(|octet| octet == delimiter);
    let found = [fields.next()?, fields.next()?, fields.next()?];
    let is_text = DELIMITERS.contains(delimiter) && fields.next().is_none();
    is_text.then_some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quietwire_base::fuzz::{check, planted};

    use super::*;

    fn announced(endpoint: &str) -> Option<Announced> {
        let endpoint: std::net::SocketAddr = endpoint.parse().unwrap();
        Some(Announced {
            address: Some(endpoint.ip()),
            port: endpoint.port(),
        })
    }

    #[test]
    fn endpoints_are_those_of_the_rfcs() {
        for (data, expected) in [
            ("PORT 10,0,0,1,4,210\r\n", announced("10.0.0.1:1234")),
            ("port 10,0,0,1,4,210\n", announced("10.0.0.1:1234")),
            (
                "PORT 10,0,0,1,4,210\r\nRETR x\r\n",
                announced("10.0.0.1:1234"),
            ),
            // The examples of RFC 2428, section 2.
            (
                "EPRT |1|132.235.1.2|6275|\r\n",
                announced("132.235.1.2:6275"),
            ),
            (
                "EPRT |2|1080::8:800:200C:417A|5282|\r\n",
                announced("[1080::8:800:200C:417A]:5282"),
            ),
            ("EPRT !1!10.0.0.1!1234!\r\n", announced("10.0.0.1:1234")),
            ("PORT 10,0,0,1,4,210", None),
            ("PORT 10,0,0,1,4,210 \r\n", None),
            ("PORT 10,0,0,1,4\r\n", None),
            ("PORT 10,0,0,1,4,256\r\n", None),
            ("PORT 10,0,0,1,4,0210\r\n", None),
            ("PORT 10,0,0,,4,210\r\n", None),
            ("XPORT 10,0,0,1,4,210\r\n", None),
            ("RETR PORT 10,0,0,1,4,210\r\n", None),
            ("EPRT |2|132.235.1.2|6275|\r\n", None),
            ("EPRT |1|132.235.1.2|65536|\r\n", None),
            ("EPRT |1|132.235.1.2|6275\r\n", None),
            ("EPRT |1|132.235.1.2|6275||\r\n", None),
            ("EPRT \r\n", None),
            ("", None),
        ] {
            assert_eq!(of_client(data.as_bytes()), expected, "{data:?}");
        }
        let passive = Some(Announced {
            address: None,
            port: 6446,
        });
        for (data, expected) in [
            (
                "227 Entering Passive Mode (192,0,2,1,4,210).\r\n",
                announced("192.0.2.1:1234"),
            ),
            ("227 =192,0,2,1,4,210\r\n", announced("192.0.2.1:1234")),
            ("229 Entering Extended Passive Mode (|||6446|)\r\n", passive),
            ("229 Entering Extended Passive Mode (!!!6446!)\r\n", passive),
            ("229 Entering Extended Passive Mode (|1||6446|)\r\n", None),
            ("229 Entering Extended Passive Mode |||6446|\r\n", None),
            ("229 )(\r\n", None),
            ("227 Entering Passive Mode\r\n", None),
            ("150 227 (192,0,2,1,4,210)\r\n", None),
            ("227-192,0,2,1,4,210\r\n", None),
        ] {
            assert_eq!(of_server(data.as_bytes()), expected, "{data:?}");
        }
        let long = format!("227 {}192,0,2,1,4,210\r\n", " ".repeat(LINE_MAX));
        assert_eq!(of_server(long.as_bytes()), None);
    }

    proptest! {
        #[test]
        fn every_endpoint_is_read_as_it_is_written(address: [u8; 4], ipv6: u128, port: u16) {
            let [a, b, c, d] = address;
            let [high, low] = port.to_be_bytes();
            let numbers = format!("{a},{b},{c},{d},{high},{low}");
            let expected = Some(Announced { address: Some(IpAddr::from(address)), port });
            prop_assert_eq!(of_client(format!("PORT {numbers}\r\n").as_bytes()), expected);
            prop_assert_eq!(of_server(format!("227 Here ({numbers})\r\n").as_bytes()), expected);
            let ipv6 = std::net::Ipv6Addr::from_bits(ipv6);
            let expected = Some(Announced { address: Some(IpAddr::V6(ipv6)), port });
            prop_assert_eq!(of_client(format!("EPRT |2|{ipv6}|{port}|\r\n").as_bytes()), expected);
            let expected = Some(Announced { address: None, port });
            prop_assert_eq!(of_server(format!("229 Here (|||{port}|)\r\n").as_bytes()), expected);
        }
    }

    /// Reads data as that of both sides. Returns true if it announces an endpoint.
    fn fuzz_helpers(data: &[u8]) -> bool {
        let both = [of_client(data), of_server(data)];
        planted("tables-helpers", || {
            both.iter().flatten().any(|one| one.port % 256 == 7)
        });
        both.iter().any(Option::is_some)
    }

    #[test]
    fn helpers() {
        check(env!("CARGO_MANIFEST_DIR"), "tables-helpers", fuzz_helpers);
    }
}
