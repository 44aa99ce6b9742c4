// SPDX-License-Identifier: Apache-2.0
//! Checks of a capture file before DPDK's driver reads it. The format is that of pcap-savefile(5).

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use quietwire_base::open_regular;

/// Formats that libpcap reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// pcap-savefile(5).
    Classic,
    /// draft-ietf-opsawg-pcapng.
    Next,
}

/// LINKTYPE_ETHERNET.
const LINK_ETHERNET: u32 = 1;
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
/// Section Header Block of pcapng, the same in both byte orders.
const MAGIC_NEXT: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Magic numbers for time stamps in microseconds and nanoseconds.
const MAGICS: [u32; 2] = [0xa1b2_c3d4, 0xa1b2_3c4d];
/// The low 16 bits are the link type; the high bits describe the FCS.
const LINK_MASK: u32 = 0xffff;

type Order = fn([u8; 4]) -> u32;

struct Reader {
    file: BufReader<File>,
    order: Order,
}

fn word(octets: &[u8], at: usize, order: Order) -> Option<u32> {
    let word = octets.get(at..)?.first_chunk::<4>()?;
    Some(order(*word))
}

fn open(path: &Path) -> Result<Option<Reader>, String> {
    // The switch opens ports while it runs: a FIFO would block it.
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err("does not exist".to_owned());
        }
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let mut file = BufReader::new(file);
    let not_a_capture = || "is not a pcap file".to_owned();
    let mut header = [0; FILE_HEADER];
    file.read_exact(&mut header).map_err(|_| not_a_capture())?;
    if header.starts_with(&MAGIC_NEXT) {
        return Ok(None);
    }
    let orders: [Order; 2] = [u32::from_le_bytes, u32::from_be_bytes];
    let order = orders
        .into_iter()
        .find(|order| word(&header, 0, *order).is_some_and(|magic| MAGICS.contains(&magic)))
        .ok_or_else(not_a_capture)?;
    match word(&header, 20, order).map(|link| link & LINK_MASK) {
        Some(LINK_ETHERNET) => Ok(Some(Reader { file, order })),
        Some(link) => Err(format!(
            "has frames of link type {link}, but a port requires Ethernet frames (link type 1)"
        )),
        None => Err(not_a_capture()),
    }
}

/// Returns the format of a capture file of Ethernet frames.
///
/// # Errors
/// The problem, as text after the file's name.
pub(crate) fn kind(path: &Path) -> Result<Kind, String> {
    Ok(match open(path)? {
        Some(_) => Kind::Classic,
        None => Kind::Next,
    })
}

/// Returns the number of complete frames in a classic capture file.
///
/// # Errors
/// The problem, as text after the file's name.
pub(crate) fn frames(path: &Path) -> Result<u32, String> {
    let Some(Reader { mut file, order }) = open(path)? else {
        return Err("is a pcapng file".to_owned());
    };
    let mut count = 0_u32;
    let mut header = [0; RECORD_HEADER];
    while file.read_exact(&mut header).is_ok() {
        let length = u64::from(word(&header, 8, order).unwrap_or(0));
        let skipped = io::copy(&mut file.by_ref().take(length), &mut io::sink())
            .map_err(|error| format!("cannot be read: {error}"))?;
        if skipped < length {
            break;
        }
        count = count
            .checked_add(1)
            .ok_or_else(|| format!("has more than {} frames", u32::MAX))?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use quietwire_base::run_within;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, octets: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("qw-{name}-{}", std::process::id()));
            fs::write(&path, octets).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn capture(order: fn(u32) -> [u8; 4], magic: u32, link: u32, frames: &[usize]) -> Vec<u8> {
        let mut octets: Vec<u8> = [magic, 0x0002_0004, 0, 0, 65535, link]
            .into_iter()
            .flat_map(order)
            .collect();
        for length in frames {
            for field in [0, 0, *length as u32, *length as u32] {
                octets.extend(order(field));
            }
            octets.extend(vec![0x5a; *length]);
        }
        octets
    }

    #[test]
    fn frames_are_counted_in_both_byte_orders() {
        for (index, order) in [u32::to_le_bytes, u32::to_be_bytes].into_iter().enumerate() {
            for magic in MAGICS {
                let octets = capture(order, magic, LINK_ETHERNET, &[60, 1514, 0]);
                let file = Scratch::new(&format!("order-{index}-{magic:x}"), &octets);
                assert_eq!(kind(&file.0), Ok(Kind::Classic));
                assert_eq!(frames(&file.0), Ok(3));
            }
        }
    }

    #[test]
    fn a_frame_that_is_cut_is_none() {
        let octets = capture(u32::to_le_bytes, MAGICS[0], LINK_ETHERNET, &[60, 60]);
        for cut in 1..76 {
            let file = Scratch::new("cut", &octets[..octets.len() - cut]);
            assert_eq!(frames(&file.0), Ok(1), "{cut}");
        }
    }

    #[test]
    fn captures_of_other_links_than_ethernet_are_reported() {
        let raw = capture(u32::to_le_bytes, MAGICS[0], 101, &[]);
        for (name, octets, part) in [
            ("empty", &[] as &[u8], "not a pcap file"),
            (
                "text",
                b"something else that is long enough",
                "not a pcap file",
            ),
            ("raw", &raw, "link type 101"),
        ] {
            let file = Scratch::new(name, octets);
            let message = kind(&file.0).unwrap_err();
            assert!(message.contains(part), "{name}: {message}");
        }
        let next = Scratch::new("next", &[&MAGIC_NEXT[..], &[0; 24]].concat());
        assert_eq!(kind(&next.0), Ok(Kind::Next));
        assert!(
            kind(Path::new("/nonexistent"))
                .unwrap_err()
                .contains("does not exist")
        );
        let fifo = Scratch(std::env::temp_dir().join(format!("qw-fifo-{}", std::process::id())));
        mkfifo(&fifo.0, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        for path in [fifo.0.as_path(), Path::new("/tmp"), Path::new("/dev/zero")] {
            let path = path.to_owned();
            // Opening a FIFO that nothing writes would block the test.
            let found = run_within(Duration::from_secs(60), move || Ok(kind(&path)));
            let message = found.unwrap().unwrap_err();
            assert!(message.contains("not a regular file"), "{message}");
        }
    }
}
