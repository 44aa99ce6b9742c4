// SPDX-License-Identifier: Apache-2.0
//! HTTP/1.1 (RFC 9110 and RFC 9112), one request per connection.

mod request;
mod response;

pub(crate) use request::{Parsed, REQUEST_MAX, Request, parse};
pub(crate) use response::{Response, Status};
