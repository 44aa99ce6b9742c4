// SPDX-License-Identifier: Apache-2.0
//! Text of files and streams that users name.

use std::path::Path;
use std::{fs, io};

/// Reads a text file.
///
/// # Errors
/// As [`fs::read_to_string`], with the words of [`text_error`].
pub fn read_text(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(text_error)
}

/// Returns the error of reading text, in words that name the cure if the contents are not UTF-8. Other errors stay.
#[must_use]
pub fn text_error(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ io::ErrorKind::InvalidData => {
            io::Error::new(kind, "it is not UTF-8 text (convert it to UTF-8)")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_and_other_contents_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "ä\n").unwrap();
        assert_eq!(read_text(&path).unwrap(), "ä\n");
        for octets in [b"\xff\xfea\0" as &[u8], b"a\xe4", b"\xc3"] {
            fs::write(&path, octets).unwrap();
            let error = read_text(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains("not UTF-8 text"), "{error}");
        }
        let absent = read_text(&directory.path().join("absent")).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }
}
