// SPDX-License-Identifier: Apache-2.0
//! Replay of frames from a capture file, pcap or pcapng.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgParser};
use pcap_file::{DataLink, PcapError};
use quietwire_base::open_regular;
use quietwire_base::random::mix;

/// Largest file accepted, octets.
const FILE_MAX: u64 = 1 << 30;
/// Shortest frame sent, octets without FCS. Shorter ones are padded, as a network interface does.
const SHORTEST: usize = 60;
/// Longest frame, octets without FCS.
const LONGEST: usize = 8996;
/// Octets at the end of a frame by which it is recognised. The octets that a device may change are in front of them.
const TAIL: usize = 26;
/// Type of the first block of a pcapng file (section 4.1 of its draft).
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Error of a capture that cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("the capture {} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file is not a capture, or not one that can be replayed.
    #[error("the capture {} cannot be sent: {what}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The problem and its offset.
        what: String,
    },
}

/// Frames of a capture file, in file order.
#[derive(Clone, PartialEq)]
pub struct Capture {
    octets: Box<[u8]>,
    /// End of each frame within the octets.
    ends: Box<[usize]>,
    /// Capture time of each frame, nanoseconds after the first; never decreasing.
    times_ns: Box<[u64]>,
    tails: HashSet<u64, BuildHasherDefault<Hashed>>,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} frames", self.ends.len())
    }
}

/// Hasher for numbers that are already hashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        for octet in octets {
            self.0 = mix(self.0 ^ u64::from(*octet));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

impl Capture {
    /// Reads a file of Ethernet frames.
    ///
    /// # Errors
    /// [`ReplayError`] with the file and the offset of the problem; also for a FIFO or a device.
    pub fn read(path: &Path) -> Result<Self, ReplayError> {
        Self::read_up_to(path, FILE_MAX)
    }

    /// Reads a file like [`Self::read`], of at most `octets_max` octets.
    fn read_up_to(path: &Path, octets_max: u64) -> Result<Self, ReplayError> {
        let unreadable = |error| ReplayError::Unreadable {
            path: path.to_owned(),
            error,
        };
        let wrong = |what| ReplayError::Wrong {
            path: path.to_owned(),
            what,
        };
        let file = open_regular(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        if length > octets_max {
            return Err(wrong(format!(
                "it has {length} octets (the limit is {octets_max})"
            )));
        }
        // A file that is written may grow.
        let mut octets = Vec::new();
        let mut file = file.take(octets_max.saturating_add(1));
        file.read_to_end(&mut octets).map_err(unreadable)?;
        if octets.len() as u64 > octets_max {
            return Err(wrong(format!("it has more than {octets_max} octets")));
        }
        Self::parse(&octets).map_err(wrong)
    }

    /// Parses the octets of such a file.
    ///
    /// # Errors
    /// One sentence with the offset of the problem.
    pub fn parse(file: &[u8]) -> Result<Self, String> {
        let mut frames = Frames::default();
        if file.starts_with(&PCAPNG) {
            read_pcapng(file, &mut frames)?;
        } else {
            read_pcap(file, &mut frames)?;
        }
        if frames.ends.is_empty() {
            return Err("it has no frames".to_owned());
        }
        frames.finish()
    }

    /// Returns the number of frames.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.ends.len()
    }

    /// Returns a frame without FCS.
    #[inline(always)]
    #[must_use]
    pub fn frame(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = match index.checked_sub(1) {
            None => 0,
            Some(before) => *self.ends.get(before)?,
        };
        self.octets.get(start..end)
    }

    /// Returns the size of the largest frame, octets with FCS.
    #[must_use]
    pub fn frame_size_largest(&self) -> u16 {
        let lengths = (0..self.frames()).filter_map(|index| Some(self.frame(index)?.len()));
        // No frame is longer than LONGEST.
        let largest = u16::try_from(lengths.max().unwrap_or(0)).unwrap_or(u16::MAX);
        largest.saturating_add(4)
    }

    /// Returns the period of the replay, nanoseconds: the time from the first to the last frame, plus the mean time between two frames.
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        let last = self.times_ns.last().copied().unwrap_or(0);
        let gaps = (self.frames() as u64).saturating_sub(1).max(1);
        // Frames of a file without time differences are sent one per microsecond.
        let last = match last {
            0 => gaps.saturating_mul(1000),
            last => last,
        };
        let mean = last.checked_div(gaps).unwrap_or(0);
        last.saturating_add(mean.max(1))
    }

    /// Returns the capture time of each frame, nanoseconds after the first.
    #[must_use]
    pub fn times_ns(&self) -> &[u64] {
        &self.times_ns
    }

    /// Returns the rate of the file's own timing at `speed` times the speed, frames per second.
    #[must_use]
    pub fn rate_pps(&self, speed: f64) -> f64 {
        self.frames() as f64 / (self.period_ns() as f64 / 1e9) * speed
    }

    /// Returns true if a frame has the end of one of the captured frames.
    #[inline(always)]
    #[must_use]
    pub fn holds(&self, frame: &[u8]) -> bool {
        self.tails.contains(&tail(frame))
    }
}

/// Returns the hash of a frame's last octets.
#[inline(always)]
fn tail(frame: &[u8]) -> u64 {
    let tail = frame.last_chunk::<TAIL>().copied().unwrap_or([0; TAIL]);
    let (words, rest) = tail.as_chunks::<8>();
    let rest = rest
        .iter()
        .fold(0, |word, octet| word << 8 | u64::from(*octet));
    words.iter().fold(
        mix(rest),
        |hash, word| mix(hash ^ u64::from_le_bytes(*word)),
    )
}

/// Frames read so far.
#[derive(Default)]
struct Frames {
    octets: Vec<u8>,
    ends: Vec<usize>,
    times_ns: Vec<u64>,
}

impl Frames {
    fn add(
        &mut self,
        offset: usize,
        time_ns: u64,
        length: u32,
        octets: &[u8],
    ) -> Result<(), String> {
        let number = self.ends.len().saturating_add(1);
        if octets.len() < length as usize {
            return Err(format!(
                "frame {number} at offset {offset} is truncated to {} of {length} octets (capture whole frames)",
                octets.len()
            ));
        }
        if !(14..=LONGEST).contains(&octets.len()) {
            return Err(format!(
                "frame {number} at offset {offset} has {} octets (frames have 14 to {LONGEST} without FCS)",
                octets.len()
            ));
        }
        self.octets.extend_from_slice(octets);
        let padding = SHORTEST.saturating_sub(octets.len());
        self.octets.extend(std::iter::repeat_n(0, padding));
        self.ends.push(self.octets.len());
        self.times_ns.push(time_ns);
        Ok(())
    }

    fn finish(self) -> Result<Capture, String> {
        let first = self.times_ns.first().copied().unwrap_or(0);
        // Time stamps of several queues may be out of order. The file order counts.
        let times_ns: Box<[u64]> = self
            .times_ns
            .iter()
            .scan(0, |latest: &mut u64, time| {
                *latest = (*latest).max(time.saturating_sub(first));
                Some(*latest)
            })
            .collect();
        let mut capture = Capture {
            octets: self.octets.into_boxed_slice(),
            ends: self.ends.into_boxed_slice(),
            times_ns,
            tails: HashSet::default(),
        };
        let tails: Vec<u64> = (0..capture.frames())
            .filter_map(|index| capture.frame(index).map(tail))
            .collect();
        capture.tails.extend(tails);
        Ok(capture)
    }
}

/// Returns the parser's error as a sentence.
fn pcap_error(error: &PcapError, offset: usize, length: usize) -> String {
    match error {
        PcapError::IncompleteBuffer => {
            format!("it is truncated: the block at offset {offset} exceeds its end at {length}")
        }
        error => format!("it is damaged at offset {offset}: {error}"),
    }
}

fn check_link(link: DataLink, offset: usize) -> Result<(), String> {
    if link == DataLink::ETHERNET {
        return Ok(());
    }
    Err(format!(
        "its frames have link type {} instead of Ethernet (offset {offset})",
        u32::from(link)
    ))
}

fn read_pcap(file: &[u8], frames: &mut Frames) -> Result<(), String> {
    let (mut rest, parser) = PcapParser::new(file).map_err(|error| match error {
        PcapError::IncompleteBuffer if file.len() >= 4 && is_pcap(file) => {
            pcap_error(&error, 0, file.len())
        }
        _ => {
            "it is neither pcap nor pcapng: it has no magic number of either (offset 0)".to_owned()
        }
    })?;
    check_link(parser.header().datalink, 20)?;
    while !rest.is_empty() {
        let offset = file.len().saturating_sub(rest.len());
        let (after, packet) = parser
            .next_packet(rest)
            .map_err(|error| pcap_error(&error, offset, file.len()))?;
        let time_ns = u64::try_from(packet.timestamp.as_nanos());
        let time_ns = time_ns.map_err(|_| late(offset))?;
        frames.add(offset, time_ns, packet.orig_len, &packet.data)?;
        rest = after;
    }
    Ok(())
}

/// Returns true for a magic number of pcap: microseconds or nanoseconds, in either byte order.
fn is_pcap(file: &[u8]) -> bool {
    let magic = file.first_chunk::<4>().copied().unwrap_or_default();
    let known = [0xa1b2_c3d4u32, 0xa1b2_3c4d];
    known
        .iter()
        .any(|known| magic == known.to_be_bytes() || magic == known.to_le_bytes())
}

fn read_pcapng(file: &[u8], frames: &mut Frames) -> Result<(), String> {
    let offset_of = |rest: &[u8]| file.len().saturating_sub(rest.len());
    let failed = |error: &PcapError, rest: &[u8]| pcap_error(error, offset_of(rest), file.len());
    let (mut rest, mut parser) = PcapNgParser::new(file).map_err(|error| failed(&error, file))?;
    while !rest.is_empty() {
        let offset = offset_of(rest);
        let (after, block) = parser
            .next_block(rest)
            .map_err(|error| failed(&error, rest))?;
        match block {
            Block::InterfaceDescription(interface) => check_link(interface.linktype, offset)?,
            Block::EnhancedPacket(packet) => {
                let interface = parser.packet_interface(&packet).ok_or_else(|| {
                    format!(
                        "the packet at offset {offset} belongs to interface {}, which the file does not describe",
                        packet.interface_id
                    )
                })?;
                // The parser treats the units of the time stamp as nanoseconds in all cases.
                let units = packet.timestamp.as_nanos();
                let time_ns = nanoseconds(units, interface).ok_or_else(|| late(offset))?;
                frames.add(offset, time_ns, packet.original_len, &packet.data)?;
            }
            Block::SimplePacket(packet) => {
                let last = frames.times_ns.last().copied().unwrap_or(0);
                frames.add(offset, last, packet.original_len, &packet.data)?;
            }
            _ => {}
        }
        rest = after;
    }
    Ok(())
}

fn late(offset: usize) -> String {
    format!("the packet at offset {offset} has a time stamp after the year 2554")
}

/// Returns a time stamp in nanoseconds; `None` if 64 bits cannot represent it. Its unit is the if_tsresol option of its interface. Default:
/// microseconds.
fn nanoseconds(units: u128, interface: &InterfaceDescriptionBlock<'_>) -> Option<u64> {
    let resolution = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    let resolution = resolution.unwrap_or(6);
    let exponent = u32::from(resolution & 0x7f);
    let per_second = if resolution & 0x80 == 0 {
        10u128.checked_pow(exponent)
    } else {
        1u128.checked_shl(exponent)
    };
    let per_second = per_second.unwrap_or(u128::MAX).max(1);
    let time_ns = units.checked_mul(1_000_000_000)?;
    u64::try_from(time_ns.checked_div(per_second)?).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use pcap_file::pcap::{PcapPacket, PcapWriter};
    use proptest::prelude::*;
    use quietwire_base::run_within;

    use super::*;

    #[test]
    fn files_without_end_and_those_that_are_too_long_are_refused() {
        let refused = |path: &Path, octets_max: u64| {
            let read = Capture::read_up_to(path, octets_max);
            read.unwrap_err().to_string()
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("capture");
        let whole = pcap(&[(0, frame(1, 60))]);
        std::fs::write(&path, &whole).unwrap();
        let length = whole.len() as u64;
        let read = Capture::read_up_to(&path, length).unwrap();
        assert_eq!(read.frames(), 1);
        let error = refused(&path, length - 1);
        assert!(error.contains("the limit is"), "{error}");
        // A file of the kernel has length 0, independent of its content.
        let error = refused(Path::new("/proc/self/maps"), 1);
        assert!(error.contains("more than 1 octets"), "{error}");
        let fifo = directory.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        for path in [fifo, PathBuf::from("/dev/zero")] {
            // Opening a FIFO that nothing writes would block the test.
            let read = run_within(Duration::from_secs(60), move || {
                Capture::read(&path).map_err(std::io::Error::other)
            });
            let error = read.unwrap_err().to_string();
            assert!(error.contains("it is not a regular file"), "{error}");
        }
    }

    fn frame(number: u8, length: usize) -> Vec<u8> {
        let mut frame = vec![number; length];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame
    }

    fn pcap(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut writer = PcapWriter::new(Vec::new()).unwrap();
        for (micros, frame) in frames {
            let time = Duration::from_micros(1_700_000_000_000_000 + micros);
            let packet = PcapPacket::new(time, frame.len() as u32, frame);
            writer.write_packet(&packet).unwrap();
        }
        writer.into_writer()
    }

    /// Returns a pcapng file: a section, an interface with time stamps in units of 10^-exponent, and frames.
    fn pcapng(exponent: Option<u8>, frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let block = |kind: u32, body: &[u8]| {
            let length = (body.len() as u32 + 12).to_le_bytes();
            [&kind.to_le_bytes(), &length[..], body, &length].concat()
        };
        let section = [
            &0x1a2b_3c4du32.to_le_bytes()[..],
            &[1, 0, 0, 0],
            &u64::MAX.to_le_bytes(),
        ]
        .concat();
        let mut interface = vec![1, 0, 0, 0, 0, 0, 4, 0];
        if let Some(exponent) = exponent {
            interface.extend([9, 0, 1, 0, exponent, 0, 0, 0, 0, 0, 0, 0]);
        }
        let mut file = block(0x0a0d_0d0a, &section);
        file.extend(block(1, &interface));
        for (units, frame) in frames {
            let mut body = vec![0; 4];
            body.extend(((units >> 32) as u32).to_le_bytes());
            body.extend((*units as u32).to_le_bytes());
            body.extend((frame.len() as u32).to_le_bytes());
            body.extend((frame.len() as u32).to_le_bytes());
            body.extend(frame);
            body.resize(body.len().next_multiple_of(4), 0);
            file.extend(block(6, &body));
        }
        file
    }

    #[test]
    fn both_formats_give_frames_and_times() {
        let frames = [
            (0, frame(1, 60)),
            (500, frame(2, 42)),
            (2000, frame(3, 1514)),
        ];
        let later = |factor: u64| {
            frames
                .clone()
                .map(|(micros, frame)| ((5_000_000_000 + micros) * factor, frame))
        };
        for file in [
            pcap(&frames),
            pcapng(None, &later(1)),
            pcapng(Some(6), &later(1)),
            pcapng(Some(9), &later(1000)),
        ] {
            let capture = Capture::parse(&file).unwrap();
            assert_eq!(capture.times_ns(), [0, 500_000, 2_000_000]);
            assert_eq!((capture.frames(), capture.frame_size_largest()), (3, 1518));
            assert_eq!(capture.period_ns(), 3_000_000);
            assert!((capture.rate_pps(2.0) - 2000.0).abs() < 1e-6);
            assert_eq!(capture.frame(0), Some(&frames[0].1[..]));
            assert_eq!(capture.frame(1).unwrap()[..42], frames[1].1);
            assert_eq!(capture.frame(1).unwrap()[42..], [0; 18]);
            assert_eq!(capture.frame(3), None);
            assert!(capture.holds(&frames[2].1));
            assert!(!capture.holds(&frame(9, 60)) && !capture.holds(&[]));
        }
    }

    #[test]
    fn invalid_captures_are_reported_with_the_offset() {
        let whole = pcap(&[(0, frame(1, 60)), (1, frame(2, 60))]);
        let error = |file: &[u8]| Capture::parse(file).unwrap_err();
        assert!(error(b"").contains("neither pcap nor pcapng"));
        assert!(error(b"[traffic]\nseed = 1\n").contains("neither pcap nor pcapng"));
        assert!(error(&whole[..10]).contains("truncated"));
        // 24 octets of file header, 16 + 60 of the first frame: the second one is truncated.
        let cut = error(&whole[..whole.len() - 1]);
        assert!(
            cut.contains("truncated") && cut.contains("offset 100"),
            "{cut}"
        );
        assert!(error(&whole[..24]).contains("no frames"));
        let mut other = whole.clone();
        other[20..24].copy_from_slice(&113u32.to_be_bytes());
        let of_link = error(&other);
        assert!(
            of_link.contains("instead of Ethernet") || of_link.contains("damaged"),
            "{of_link}"
        );
        let whole = pcapng(None, &[(0, frame(1, 60))]);
        assert!(error(&whole[..whole.len() - 3]).contains("truncated"));
        assert!(error(&pcapng(None, &[(0, frame(1, 9000))])).contains("8996"));
        // Microseconds and seconds beyond 64 bits of nanoseconds; they were cut to their lower bits.
        for (exponent, units) in [(6, u64::MAX), (0, 1 << 40)] {
            let late = error(&pcapng(Some(exponent), &[(units, frame(1, 60))]));
            assert!(
                late.contains("2554") && late.contains("offset 60"),
                "{late}"
            );
        }
        let last = pcapng(Some(9), &[(0, frame(1, 60)), (u64::MAX, frame(1, 60))]);
        assert_eq!(Capture::parse(&last).unwrap().period_ns(), u64::MAX);
        let missing = Capture::read(Path::new("/absent.pcap")).unwrap_err();
        assert!(missing.to_string().contains("/absent.pcap"), "{missing}");
    }

    proptest! {
        #[test]
        fn no_damage_makes_it_panic(
            ng in any::<bool>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            left in any::<prop::sample::Index>(),
        ) {
            let frames = [(0, frame(1, 60)), (7, frame(2, 61)), (9, frame(3, 99))];
            let mut file = if ng { pcapng(Some(9), &frames) } else { pcap(&frames) };
            for (at, octet) in changes {
                let at = at.index(file.len());
                file[at] = octet;
            }
            file.truncate(left.index(file.len() + 1));
            if let Ok(capture) = Capture::parse(&file) {
                prop_assert!(capture.frames() > 0);
                prop_assert!(capture.times_ns().is_sorted());
                prop_assert!(capture.period_ns() > 0 && capture.frame_size_largest() >= 64);
                for index in 0..capture.frames() {
                    let frame = capture.frame(index).unwrap();
                    prop_assert!((60..=8996).contains(&frame.len()));
                    prop_assert!(capture.holds(frame));
                }
            }
        }
    }
}
