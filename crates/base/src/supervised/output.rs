// SPDX-License-Identifier: Apache-2.0
//! Output of child processes: read by a thread, kept up to a limit in memory and in a file.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::deadline::Deadline;

/// Interval between two checks whether an output has ended.
const LOOK: Duration = Duration::from_millis(1);

/// Lines of an output that errors show.
const LINES: usize = 12;

/// Receiver of all octets of an output.
pub(super) type Log = Box<dyn Write + Send>;

/// The end of an output, and the first error of its file.
#[derive(Debug, Default)]
struct Retained {
    octets: VecDeque<u8>,
    failure: Option<String>,
}

/// An output that a thread reads until its end, because a full pipe would stop the child. The thread outlives this value while another
/// process holds the pipe open.
#[derive(Debug)]
pub(super) struct Output {
    kept: Arc<Mutex<Retained>>,
    reader: JoinHandle<()>,
}

impl Output {
    /// Reads a pipe. The last `max` octets are kept; everything goes into `log` as well.
    pub(super) fn read(mut pipe: PipeReader, max: usize, mut log: Option<Log>) -> io::Result<Self> {
        let kept = Arc::new(Mutex::new(Retained::default()));
        let here = Arc::clone(&kept);
        let reader = std::thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                loop {
                    let octets = match pipe.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(length) => buffer.get(..length).unwrap_or_default(),
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                        Err(error) => {
                            locked(&here).failure = Some(format!("(reading it: {error})"));
                            break;
                        }
                    };
                    // The child must not wait for a full disk: its output is read on.
                    let written = log.as_mut().map(|log| log.write_all(octets));
                    let mut kept = locked(&here);
                    if let Some(Err(error)) = written {
                        log = None;
                        kept.failure = Some(format!("(writing its log: {error})"));
                    }
                    kept.octets.extend(octets);
                    let excess = kept.octets.len().saturating_sub(max);
                    kept.octets.drain(..excess);
                }
            })?;
        Ok(Self { kept, reader })
    }

    /// Waits until the output has ended, or the deadline.
    pub(super) fn settle(&self, deadline: Deadline) {
        deadline.poll(LOOK, || self.reader.is_finished().then_some(()));
    }

    /// Removes and returns the kept octets.
    pub(super) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut locked(&self.kept).octets).into()
    }

    /// Returns the kept octets as text, and the reason if some are missing.
    pub(super) fn text(&self) -> String {
        let mut kept = locked(&self.kept);
        let mut text = String::from_utf8_lossy(kept.octets.make_contiguous()).into_owned();
        if let Some(failure) = &kept.failure {
            text.push_str(failure);
            text.push('\n');
        }
        text
    }
}

fn locked(kept: &Mutex<Retained>) -> MutexGuard<'_, Retained> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the last 12 lines of an output, for an error message.
#[must_use]
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(LINES);
    match lines.get(first..) {
        None | Some([]) => "(it printed nothing)".to_owned(),
        Some(last) => last.join("\n"),
    }
}

/// A log file of limited size. When it is full, a quarter of the limit remains from its beginning and a quarter from its end, with a line
/// between them that has the number of missing octets.
#[derive(Debug)]
pub struct BoundedLog {
    file: File,
    max: u64,
    length: u64,
    /// Octets that were written so far, those that are left out included.
    total: u64,
}

impl BoundedLog {
    /// Opens a log to append to it, and creates it if it does not exist. Only its owner may read it.
    ///
    /// # Errors
    /// The error of the system.
    pub fn open(path: &Path, max: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path)?;
        let length = file.metadata()?.len();
        Ok(Self {
            file,
            max,
            length,
            total: length,
        })
    }

    /// Removes the middle.
    fn cut(&mut self) -> io::Result<()> {
        // The tail is at most as long as the file, and all parts together are shorter than it.
        let (head, tail) = (self.max / 4, (self.max / 4).min(self.length));
        let mut last = vec![0; usize::try_from(tail).map_err(io::Error::other)?];
        self.file
            .read_exact_at(&mut last, self.length.saturating_sub(tail))?;
        let left_out = self.total.saturating_sub(head.saturating_add(tail));
        let marker = format!("\n({left_out} octets left out)\n");
        self.file.set_len(head)?;
        self.file.write_all_at(marker.as_bytes(), head)?;
        self.length = head.saturating_add(marker.len() as u64);
        self.file.write_all_at(&last, self.length)?;
        self.length = self.length.saturating_add(tail);
        Ok(())
    }
}

impl Write for BoundedLog {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        // Never more than a quarter at once, so there is space after a cut.
        let quarter = usize::try_from(self.max / 4).unwrap_or(usize::MAX).max(1);
        let octets = octets.get(..quarter).unwrap_or(octets);
        let length = octets.len() as u64;
        if self.length.saturating_add(length) > self.max {
            self.cut()?;
        }
        self.file.write_all_at(octets, self.length)?;
        self.length = self.length.saturating_add(length);
        self.total = self.total.saturating_add(length);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_full_log_keeps_its_beginning_and_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = BoundedLog::open(&path, 4096).unwrap();
        for number in 0..10_000 {
            writeln!(log, "line {number}").unwrap();
            assert!(fs::metadata(&path).unwrap().len() <= 4096);
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("line 0\nline 1\n"), "{text}");
        assert!(text.ends_with("line 9998\nline 9999\n"), "{text}");
        assert_eq!(text.matches("octets left out").count(), 1, "{text}");
        // A log of an earlier process is appended to, and is as limited.
        let mut again = BoundedLog::open(&path, 4096).unwrap();
        again.write_all(&[b'x'; 100_000]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("line 0\n") && text.ends_with('x') && text.len() <= 4096,
            "{text}"
        );
    }

    #[test]
    fn output_is_read_and_reported_even_if_its_log_cannot_be_written() {
        let (reader, mut writer) = io::pipe().unwrap();
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Output::read(reader, 16, Some(Box::new(full))).unwrap();
        // More than a pipe holds.
        writer.write_all(&[b'x'; 200_000]).unwrap();
        writer.write_all(b"end\n").unwrap();
        drop(writer);
        output.settle(Deadline::after(Duration::from_secs(60)));
        let text = output.text();
        assert!(
            text.starts_with("xxxxxxxxxxxxend\n(writing its log"),
            "{text}"
        );
    }

    #[test]
    fn an_error_shows_the_last_lines() {
        let lines: Vec<String> = (0..20).map(|number| format!("line {number}")).collect();
        assert_eq!(last_lines(&lines.join("\n")), lines[8..].join("\n"));
        assert_eq!(last_lines(""), "(it printed nothing)");
    }
}
