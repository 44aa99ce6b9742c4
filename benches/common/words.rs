// SPDX-License-Identifier: Apache-2.0
//! Words and numbers of tables and figures.

/// Name of a side.
pub(crate) const VPP: &str = "VPP";

/// Formats a number with separators: 20,000.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
