// SPDX-License-Identifier: Apache-2.0
//! Access: only for clients that address this server by its own name, and pages of this server. A page of another origin cannot read
//! answers anyway; these checks also refuse its requests, and those that reach this address by another name (DNS rebinding).

use std::net::SocketAddr;

use crate::http::{Request, Response, Status};

/// Default port of HTTP.
const HTTP_PORT: u16 = 80;
const WRONG_TOKEN: &str = "the token is missing or wrong (send Authorization: Bearer TOKEN)";

/// Returns the names of the server in the field `Host`.
fn names(address: SocketAddr) -> Vec<String> {
    let ip = match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    };
    let mut names = Vec::new();
    for host in [ip, "localhost".to_owned()] {
        names.push(format!("{host}:{}", address.port()));
        if address.port() == HTTP_PORT {
            names.push(host);
        }
    }
    names
}

/// Refuses a request from elsewhere.
pub(crate) fn check(request: &Request, address: SocketAddr) -> Result<(), Response> {
    let names = names(address);
    let refused = |reason: &str| Err(Response::error(Status::Forbidden, reason));
    let is_own = |host: &str| names.iter().any(|name| name.eq_ignore_ascii_case(host));
    if !request.host.as_deref().is_some_and(is_own) {
        return refused("the field Host does not have the address of this server");
    }
    if let Some(origin) = &request.origin
        && !origin.strip_prefix("http://").is_some_and(is_own)
    {
        return refused("requests of other origins are refused");
    }
    match request.fetch_site.as_deref() {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => refused("requests of other sites are refused"),
    }
}

/// Refuses a request without the token. Without credentials, it is unauthorized also if no token is accepted (RFC 9110, section 15.5.2).
pub(crate) fn check_token(request: &Request, token: Option<&str>) -> Result<(), Response> {
    let read_only = "this server is read-only (start it with --token-file)";
    let Some(field) = &request.authorization else {
        return Err(Response::unauthorized(match token {
            Some(_) => WRONG_TOKEN,
            None => read_only,
        }));
    };
    let Some(token) = token else {
        return Err(Response::error(Status::Forbidden, read_only));
    };
    let given = field.split_once(' ').and_then(|(scheme, token)| {
        let is_bearer = scheme.eq_ignore_ascii_case("Bearer");
        is_bearer.then(|| token.trim())
    });
    if given.is_some_and(|given| is_equal(given, token)) {
        Ok(())
    } else {
        Err(Response::unauthorized(WRONG_TOKEN))
    }
}

/// Compares two texts in a time that depends on their lengths only.
fn is_equal(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    let difference = pairs.fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(host: Option<&str>, origin: Option<&str>, site: Option<&str>) -> Option<Status> {
        let request = Request {
            host: host.map(str::to_owned),
            origin: origin.map(str::to_owned),
            fetch_site: site.map(str::to_owned),
            ..Request::default()
        };
        let address = "127.0.0.1:8080".parse().unwrap();
        check(&request, address).err().map(|refused| refused.status)
    }

    #[test]
    fn other_hosts_origins_and_sites_are_refused() {
        let own = Some("127.0.0.1:8080");
        assert_eq!(status(own, None, None), None);
        assert_eq!(status(Some("LOCALHOST:8080"), None, Some("none")), None);
        let origin = Some("http://localhost:8080");
        assert_eq!(status(own, origin, Some("same-origin")), None);
        for host in [
            None,
            Some(""),
            Some("127.0.0.1"),
            Some("evil.example:8080"),
            Some("127.0.0.1:8081"),
        ] {
            assert_eq!(
                status(host, None, None),
                Some(Status::Forbidden),
                "{host:?}"
            );
        }
        for origin in [
            "null",
            "https://127.0.0.1:8080",
            "http://evil.example",
            "http://127.0.0.1:8080.evil.example",
        ] {
            assert_eq!(
                status(own, Some(origin), None),
                Some(Status::Forbidden),
                "{origin}"
            );
        }
        for site in ["cross-site", "same-site", ""] {
            assert_eq!(
                status(own, None, Some(site)),
                Some(Status::Forbidden),
                "{site}"
            );
        }
        let six: SocketAddr = "[::1]:80".parse().unwrap();
        assert_eq!(
            names(six),
            ["[::1]:80", "[::1]", "localhost:80", "localhost"]
        );
    }

    #[test]
    fn only_the_token_starts_a_study() {
        let token = Some("0123456789abcdef");
        let status = |field: Option<&str>, token: Option<&str>| {
            let request = Request {
                authorization: field.map(str::to_owned),
                ..Request::default()
            };
            check_token(&request, token)
                .err()
                .map(|refused| refused.status)
        };
        assert_eq!(status(Some("bearer 0123456789abcdef"), token), None);
        for field in [
            None,
            Some(""),
            Some("Bearer"),
            Some("Bearer "),
            Some("Bearer 0123456789abcde"),
            Some("Bearer 0123456789abcdeF"),
            Some("Basic 0123456789abcdef"),
        ] {
            assert_eq!(
                status(field, token),
                Some(Status::Unauthorized),
                "{field:?}"
            );
        }
        assert_eq!(status(Some("Bearer "), None), Some(Status::Forbidden));
        assert_eq!(status(None, None), Some(Status::Unauthorized));
    }
}
