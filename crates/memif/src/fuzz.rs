// SPDX-License-Identifier: Apache-2.0
//! Fuzz targets: each takes any octets and must come to an end without a panic.

use crate::message::Message;

/// Octets of the control channel.
pub fn message(octets: &[u8]) {
    for descriptors in 0..2 {
        let Ok(message) = Message::parse(octets, descriptors) else {
            continue;
        };
        assert_eq!(Message::parse(&message.encode(), descriptors), Ok(message));
    }
}
