// SPDX-License-Identifier: Apache-2.0
//! Responses.

use std::sync::LazyLock;

use quietwire_base::metrics::CONTENT_TYPE;
use serde::Serialize;
use serde_json::json;

/// Status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    Accepted,
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    Conflict,
    ContentTooLarge,
    UnsupportedMediaType,
    HeadTooLarge,
    Busy,
}

impl Status {
    /// Returns its code and its reason (RFC 9110, section 15; RFC 6585, section 5).
    pub(crate) fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::Accepted => "202 Accepted",
            Self::BadRequest => "400 Bad Request",
            Self::Unauthorized => "401 Unauthorized",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::Conflict => "409 Conflict",
            Self::ContentTooLarge => "413 Content Too Large",
            Self::UnsupportedMediaType => "415 Unsupported Media Type",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::Busy => "503 Service Unavailable",
        }
    }
}

/// Pages load nothing from elsewhere, and no other page shows them in a frame. Pages of studies have their style and their script inside.
static FIELDS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'self' {}; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n",
        quietwire_report::script_source()
    )
});

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: Status,
    kind: &'static str,
    content: Vec<u8>,
    /// Further header fields.
    fields: String,
}

impl Response {
    fn new(status: Status, kind: &'static str, content: Vec<u8>) -> Self {
        Self {
            status,
            kind,
            content,
            fields: String::new(),
        }
    }

    /// Returns a page.
    pub(crate) fn page(text: String) -> Self {
        Self::new(Status::Ok, "text/html; charset=utf-8", text.into_bytes())
    }

    /// Returns a script.
    pub(crate) fn script(text: &str) -> Self {
        let kind = "text/javascript; charset=utf-8";
        Self::new(Status::Ok, kind, text.as_bytes().to_vec())
    }

    /// Returns metrics in the text format of Prometheus.
    pub(crate) fn metrics(text: String) -> Self {
        Self::new(Status::Ok, CONTENT_TYPE, text.into_bytes())
    }

    /// Returns a document.
    pub(crate) fn json(status: Status, document: &impl Serialize) -> Self {
        match serde_json::to_vec(document) {
            Ok(content) => Self::new(status, "application/json", content),
            Err(error) => Self::error(Status::Busy, &format!("no document: {error}")),
        }
    }

    /// Returns an error with its reason.
    pub(crate) fn error(status: Status, reason: &str) -> Self {
        let content = json!({ "error": reason }).to_string().into_bytes();
        Self::new(status, "application/json", content)
    }

    /// Returns an error for a resource that has other methods.
    pub(crate) fn only(methods: &str) -> Self {
        let reason = format!("this resource supports {methods} only");
        Self {
            fields: format!("Allow: {methods}\r\n"),
            ..Self::error(Status::MethodNotAllowed, &reason)
        }
    }

    /// Returns an error for a request without the token (RFC 6750, section 3).
    pub(crate) fn unauthorized(reason: &str) -> Self {
        Self {
            fields: "WWW-Authenticate: Bearer realm=\"quietwire\"\r\n".to_owned(),
            ..Self::error(Status::Unauthorized, reason)
        }
    }

    /// Returns its octets, without content for HEAD.
    pub(crate) fn octets(&self, is_head: bool) -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}{}\r\n",
            self.status.line(),
            self.kind,
            self.content.len(),
            self.fields,
            *FIELDS
        );
        let mut octets = head.into_bytes();
        if !is_head {
            octets.extend_from_slice(&self.content);
        }
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_its_length_and_loads_nothing_from_elsewhere() {
        let text =
            |response: &Response, is_head| String::from_utf8(response.octets(is_head)).unwrap();
        let error = Response::only("GET, HEAD");
        let whole = text(&error, false);
        assert!(
            whole.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"),
            "{whole}"
        );
        assert!(whole.contains("\r\nAllow: GET, HEAD\r\n"));
        assert!(whole.contains("\r\nContent-Security-Policy: default-src 'none';"));
        // The script of the pages of studies, and no other one inside a page.
        let scripts = format!("script-src 'self' {};", quietwire_report::script_source());
        assert!(whole.contains(&scripts), "{whole}");
        let (head, content) = whole.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", content.len())));
        assert_eq!(text(&error, true), format!("{head}\r\n\r\n"));
        assert!(Status::HeadTooLarge.line().starts_with("431 "));
    }
}
