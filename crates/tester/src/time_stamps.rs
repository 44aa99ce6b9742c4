// SPDX-License-Identifier: Apache-2.0
//! Raw transmit and receive times of the low-rate streams as a pcapng file, from which latency, IPDV and PDV can be computed again.
//!
//! A lane notes the transmit time of each low-rate frame, and the samples of the receiving lanes have its latency. The file is written
//! after each trial, never during one.

mod pcapng;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use pcapng::{Instant, RECEIVE, TRANSMIT};

use crate::latency::{Samples, Scale};

/// Largest number of times in a file, transmit and receive times together: about 200 MB.
pub(crate) const TIMES_MAX: u64 = 1 << 21;

/// Low-rate frames of one port of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream<'a> {
    /// Index of the transmitting port.
    pub(crate) port: u8,
    /// Transmit times, ticks, by sequence number.
    pub(crate) sent: &'a [u64],
}

/// Start of the counted part of a trial on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrialStart {
    /// Nanoseconds since the Unix epoch.
    pub(crate) unix_ns: u64,
    /// Ticks.
    pub(crate) tick: u64,
}

/// A pcapng file with the times of the low-rate frames of all trials of a tester: at most 2,097,152 times.
#[derive(Debug)]
pub struct TimeStampFile {
    path: PathBuf,
    file: BufWriter<File>,
    /// Times written.
    times: u64,
    /// Times left out because the file is full.
    left_out: u64,
}

impl TimeStampFile {
    /// Creates a file, or empties it if it exists.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&pcapng::head())?;
        file.flush()?;
        Ok(Self {
            path: path.to_owned(),
            file,
            times: 0,
            left_out: 0,
        })
    }

    /// Adds the times of a trial, in order of time, as far as they fit.
    pub(crate) fn append(
        &mut self,
        start: TrialStart,
        scale: Scale,
        streams: &[Stream<'_>],
        received: &Samples,
    ) -> io::Result<()> {
        let instants = instants(start, scale, streams, received);
        let space = usize::try_from(TIMES_MAX.saturating_sub(self.times)).unwrap_or(usize::MAX);
        let written = instants.len().min(space);
        for instant in instants.iter().take(written) {
            let packet = pcapng::packet(start.unix_ns, instant);
            self.file.write_all(&packet)?;
        }
        self.file.flush()?;
        self.times = self.times.saturating_add(written as u64);
        let left_out = instants.len().saturating_sub(written) as u64;
        if left_out > 0 && self.left_out == 0 {
            tracing::warn!(
                "{}: the file is full after {TIMES_MAX} time stamps, so later ones are missing (reduce --low-rate or the duration)",
                self.path.display()
            );
        }
        self.left_out = self.left_out.saturating_add(left_out);
        Ok(())
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the transmit times of all frames and the receive times of those that arrived, in order of time. A receive time is the transmit
/// time plus the latency, so that the difference is exactly the latency of the result.
fn instants(
    start: TrialStart,
    scale: Scale,
    streams: &[Stream<'_>],
    received: &Samples,
) -> Vec<Instant> {
    let unix_ns = |tick: u64| {
        let since_start_ns = scale.ns(tick.saturating_sub(start.tick));
        start.unix_ns.saturating_add(since_start_ns)
    };
    let mut instants = Vec::new();
    for stream in streams {
        let sent = (0_u32..).zip(stream.sent);
        instants.extend(sent.map(|(sequence, tick)| Instant {
            unix_ns: unix_ns(*tick),
            interface: TRANSMIT,
            port: stream.port,
            sequence,
        }));
    }
    for sample in received.iter() {
        let stream = streams.iter().find(|stream| stream.port == sample.port);
        let sent = stream.and_then(|stream| stream.sent.get(sample.sequence as usize));
        // A frame that was never sent, or beyond the bound of the list, has no transmit time.
        let Some(tick) = sent else { continue };
        instants.push(Instant {
            unix_ns: unix_ns(*tick).saturating_add(sample.delay_ns),
            interface: RECEIVE,
            port: sample.port,
            sequence: sample.sequence,
        });
    }
    instants.sort_unstable();
    instants
}
