// SPDX-License-Identifier: Apache-2.0
//! Text of files and streams that users name.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::regular_file::read_up_to;

/// Maximum length of a text, octets. The largest configuration is shorter.
const TEXT_MAX: u64 = 256 << 20;

/// Reads a text file of at most 256 MiB, or a pipe.
///
/// # Errors
/// Errors of opening and reading the file, as [`text_error`] describes them. [`io::ErrorKind::Other`] if the text is longer.
pub fn read_text(path: &Path) -> io::Result<String> {
    read_text_up_to(path, TEXT_MAX)
}

/// Reads a text of at most `octets_max` octets, like [`read_text`].
fn read_text_up_to(path: &Path, octets_max: u64) -> io::Result<String> {
    let octets = read_up_to(File::open(path)?, octets_max)?;
    String::from_utf8(octets)
        .map_err(|error| text_error(io::Error::new(io::ErrorKind::InvalidData, error)))
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
    use std::fs;

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
        fs::write(&path, "äb").unwrap();
        assert_eq!(read_text_up_to(&path, 3).unwrap(), "äb");
        for path in [path.as_path(), Path::new("/dev/zero")] {
            let error = read_text_up_to(path, 2).unwrap_err().to_string();
            assert_eq!(error, "it is longer than 2 octets");
        }
        let absent = read_text(&directory.path().join("absent")).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }
}
