// SPDX-License-Identifier: Apache-2.0
//! Short names that are computed from longer ones.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Returns the first octets of the SHA-256 hash of words, as hexadecimal digits. The words contain no zero.
pub(crate) fn hash(words: &[&str], octets: usize) -> String {
    let mut hash = Sha256::new();
    for word in words {
        hash.update(word);
        hash.update([0]);
    }
    let mut digits = String::new();
    for octet in hash.finalize().iter().take(octets) {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{octet:02x}");
    }
    digits
}
