// SPDX-License-Identifier: Apache-2.0
//! Requests.

use super::response::Status;

/// Maximum length of a request's head, octets.
const HEAD_MAX: usize = 8192;
/// Maximum length of a request's content, octets.
const CONTENT_MAX: usize = 4096;
/// Maximum length of a request, octets.
pub(crate) const REQUEST_MAX: usize = HEAD_MAX + CONTENT_MAX;
const HEADERS_MAX: usize = 64;

/// A request. Header fields that are not listed here have no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Segments of the path, decoded: one empty segment for `/`.
    pub(crate) path: Vec<String>,
    pub(crate) host: Option<String>,
    pub(crate) origin: Option<String>,
    /// `Sec-Fetch-Site` of browsers (W3C Fetch Metadata).
    pub(crate) fetch_site: Option<String>,
    pub(crate) authorization: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) content: Vec<u8>,
}

/// Result of parsing the octets that have arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// More octets are missing.
    Incomplete,
    /// A whole request.
    Complete(Box<Request>),
    /// No request.
    Refused(Status),
}

/// Parses a request.
pub(crate) fn parse(octets: &[u8]) -> Parsed {
    match read(octets) {
        Ok(Some(request)) => Parsed::Complete(Box::new(request)),
        Ok(None) => Parsed::Incomplete,
        Err(status) => Parsed::Refused(status),
    }
}

fn read(octets: &[u8]) -> Result<Option<Request>, Status> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let head = match parsed.parse(octets) {
        Ok(httparse::Status::Complete(head)) if head <= HEAD_MAX => head,
        Ok(httparse::Status::Complete(_)) | Err(httparse::Error::TooManyHeaders) => {
            return Err(Status::HeadTooLarge);
        }
        Ok(httparse::Status::Partial) if octets.len() >= HEAD_MAX => {
            return Err(Status::HeadTooLarge);
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Status::BadRequest),
    };
    let mut request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: segments(parsed.path.unwrap_or_default())?,
        ..Request::default()
    };
    let mut length = None;
    for header in parsed.headers.iter() {
        let name = header.name.to_ascii_lowercase();
        let field = match name.as_str() {
            "host" => &mut request.host,
            "origin" => &mut request.origin,
            "sec-fetch-site" => &mut request.fetch_site,
            "authorization" => &mut request.authorization,
            "content-type" => &mut request.content_type,
            "content-length" => &mut length,
            // Content of unknown length.
            "transfer-encoding" => return Err(Status::BadRequest),
            _ => continue,
        };
        let value = std::str::from_utf8(header.value).map_err(|_| Status::BadRequest)?;
        // Two values of one of these fields are a request that two programs could understand differently.
        if field.replace(value.trim().to_owned()).is_some() {
            return Err(Status::BadRequest);
        }
    }
    let length = match length {
        Some(text) if !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit()) => {
            text.parse().unwrap_or(usize::MAX)
        }
        Some(_) => return Err(Status::BadRequest),
        None => 0,
    };
    if length > CONTENT_MAX {
        return Err(Status::ContentTooLarge);
    }
    let content = octets.get(head..head.saturating_add(length));
    Ok(content.map(|content| Request {
        content: content.to_vec(),
        ..request
    }))
}

/// Returns the decoded segments of the path of a request target (RFC 3986, sections 2.1 and 3.3), without its query.
fn segments(target: &str) -> Result<Vec<String>, Status> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let path = path.strip_prefix('/').ok_or(Status::BadRequest)?;
    path.split('/').map(decoded).collect()
}

/// Decodes the percent encoding of a segment.
fn decoded(segment: &str) -> Result<String, Status> {
    let mut octets = Vec::new();
    let mut rest = segment.bytes();
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'%' => {
                let mut digit = || {
                    let digit = char::from(rest.next()?).to_digit(16)?;
                    u8::try_from(digit).ok()
                };
                let (high, low) = (digit(), digit());
                let digits = high.zip(low).ok_or(Status::BadRequest)?;
                digits.0 << 4 | digits.1
            }
            octet => octet,
        });
    }
    String::from_utf8(octets).map_err(|_| Status::BadRequest)
}

#[cfg(test)]
mod tests {
    use quietwire_base::fuzz::{check, planted};

    use super::*;

    fn complete(text: &str) -> Request {
        match parse(text.as_bytes()) {
            Parsed::Complete(request) => *request,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn a_request_has_its_fields_and_its_content() {
        let request = complete(
            "POST /api/studies?x=/../ HTTP/1.1\r\nHost: 127.0.0.1:80\r\nORIGIN: http://127.0.0.1:80\r\nauthorization: Bearer t\r\n\
             Content-Type: application/json\r\nContent-Length: 4\r\n\r\n{}\r\nand more",
        );
        assert_eq!(request.method, "POST");
        assert_eq!(request.path, ["api", "studies"]);
        assert_eq!(request.host.as_deref(), Some("127.0.0.1:80"));
        assert_eq!(request.origin.as_deref(), Some("http://127.0.0.1:80"));
        assert_eq!(request.authorization.as_deref(), Some("Bearer t"));
        assert_eq!(request.content, b"{}\r\n");
        assert_eq!(complete("GET / HTTP/1.1\r\n\r\n").path, [""]);
        let escaped = complete("GET /studies/%2e%2e%2Fetc%20a HTTP/1.1\r\n\r\n");
        assert_eq!(escaped.path, ["studies", "../etc a"]);
    }

    #[test]
    fn invalid_http_requests_are_refused() {
        let head = |fields: &str| format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n");
        for (text, status) in [
            (head("Host: a\r\nHost: b"), Status::BadRequest),
            (
                head("Content-Length: 1\r\nContent-Length: 1"),
                Status::BadRequest,
            ),
            (head("Content-Length: +1"), Status::BadRequest),
            (
                head("Content-Length: 99999999999999999999"),
                Status::ContentTooLarge,
            ),
            (head("Content-Length: 4097"), Status::ContentTooLarge),
            (head("Transfer-Encoding: chunked"), Status::BadRequest),
            ("GET /%4 HTTP/1.1\r\n\r\n".to_owned(), Status::BadRequest),
            ("GET /%zz HTTP/1.1\r\n\r\n".to_owned(), Status::BadRequest),
            ("GET /%ff HTTP/1.1\r\n\r\n".to_owned(), Status::BadRequest),
            (
                "GET http://a/ HTTP/1.1\r\n\r\n".to_owned(),
                Status::BadRequest,
            ),
            ("OPTIONS * HTTP/1.1\r\n\r\n".to_owned(), Status::BadRequest),
            ("\u{16}\u{3}\u{1}".to_owned(), Status::BadRequest),
            ("a".repeat(HEAD_MAX), Status::HeadTooLarge),
            (
                head(&format!("A: {}", "a".repeat(HEAD_MAX))),
                Status::HeadTooLarge,
            ),
            (
                head(&"A: a\r\n".repeat(HEADERS_MAX + 1)),
                Status::HeadTooLarge,
            ),
        ] {
            assert_eq!(parse(text.as_bytes()), Parsed::Refused(status), "{text:?}");
        }
        for partial in [
            "",
            "GET / HT",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab",
        ] {
            assert_eq!(parse(partial.as_bytes()), Parsed::Incomplete, "{partial:?}");
        }
    }

    /// Parses any octets as a request. Octets after a request do not change it, and each is complete or refused at the maximum length.
    fn fuzz_request(octets: &[u8]) -> bool {
        let octets = octets.get(..REQUEST_MAX).unwrap_or(octets);
        let whole = parse(octets);
        let mut padded = octets.to_vec();
        padded.resize(REQUEST_MAX, b'a');
        assert_ne!(parse(&padded), Parsed::Incomplete);
        if let Parsed::Complete(_) = &whole {
            assert_eq!(parse(&padded), whole);
        }
        planted("serve-http", || match &whole {
            Parsed::Complete(request) => request.path.len() > 4 && request.content.len() > 8,
            _ => false,
        });
        matches!(whole, Parsed::Complete(_))
    }

    #[test]
    fn fuzz_requests() {
        check(env!("CARGO_MANIFEST_DIR"), "serve-http", fuzz_request);
    }
}
