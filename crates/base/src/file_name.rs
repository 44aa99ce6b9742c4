// SPDX-License-Identifier: Apache-2.0
//! Names that other programs wrote, before they become parts of paths.

/// Most octets of a file's name (NAME_MAX of the kernel's include/uapi/linux/limits.h).
const NAME_MAX: usize = 255;

/// Returns true if a file in a directory can have this name: 1 to 255 octets without a slash and control characters, and neither `.` nor
/// `..`. A path that is joined with such a name stays in its directory.
#[must_use]
pub fn is_file_name(name: &str) -> bool {
    let is_refused = |letter: char| letter == '/' || letter.is_control();
    !matches!(name, "" | "." | "..") && name.len() <= NAME_MAX && !name.contains(is_refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_directory() {
        for name in [
            "a",
            "vnf-0.console.log",
            "...",
            "a b",
            "\u{e4}",
            &"x".repeat(255),
        ] {
            assert!(is_file_name(name), "{name}");
        }
        let long = "x".repeat(256);
        for name in [
            "", ".", "..", "/", "a/b", "../a", "/etc/x", "a\0", "a\n", &long,
        ] {
            assert!(!is_file_name(name), "{name:?}");
        }
    }
}
