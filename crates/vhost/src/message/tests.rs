// SPDX-License-Identifier: Apache-2.0
use super::{Header, MessageError};

#[test]
fn header_of_another_version_is_an_error() {
    assert_eq!(Header::parse(&[0; 12]), Err(MessageError::Version(0)));
}
