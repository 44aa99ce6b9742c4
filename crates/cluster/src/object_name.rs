// SPDX-License-Identifier: Apache-2.0
//! Names of objects that others have written, before they become parts of paths of the API server.

/// Longest name of an object (RFC 1123, section 2.1).
const NAME_MAX: usize = 253;

/// Returns whether an object may have this name: letters, digits, `-` and dots. A path with such a name stays in its place.
pub(crate) fn is_object_name(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !name.is_empty()
        && name.len() <= NAME_MAX
        && name.chars().all(is_fine)
        && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path() {
        for name in ["lan", "apps.lan-2", "0", &"a".repeat(NAME_MAX)] {
            assert!(is_object_name(name), "{name}");
        }
        let long = "a".repeat(NAME_MAX + 1);
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "a?watch=1",
            "a%2fb",
            "a#b",
            "A",
            "a\n",
            &long,
        ] {
            assert!(!is_object_name(name), "{name}");
        }
    }
}
