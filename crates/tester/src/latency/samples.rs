// SPDX-License-Identifier: Apache-2.0
//! List of all samples, from which the figures of low-rate streams are computed and with which faster algorithms are verified.

use super::recorder::Recorder;
use super::signed::SignedRecorder;

/// A received frame; of duplicates, the first undamaged copy within the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sample {
    /// Index of the port that sent it.
    pub(crate) port: u8,
    /// Sequence number in the stream.
    pub(crate) sequence: u32,
    /// Latency, nanoseconds.
    pub(crate) delay_ns: u64,
}

/// Samples of streams, one stream per port, in order of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    list: Vec<Sample>,
}

impl Samples {
    /// Creates a list for `samples` samples. Further samples are ignored, because the packet path does not allocate memory.
    pub(crate) fn with_capacity(samples: usize) -> Self {
        Self {
            list: Vec::with_capacity(samples),
        }
    }

    #[cold]
    pub(crate) fn add(&mut self, sample: Sample) {
        if self.list.len() < self.list.capacity() {
            self.list.push(sample);
        }
    }

    /// Adds the samples of another list.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.list.extend_from_slice(&other.list);
    }

    /// Returns the samples of the stream that one port sent, in transmit order.
    pub(crate) fn of_port(&self, port: u8) -> Self {
        let of_port = self.list.iter().filter(|sample| sample.port == port);
        let mut list: Vec<Sample> = of_port.copied().collect();
        list.sort_unstable();
        Self { list }
    }

    /// Returns the samples.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sample> {
        self.list.iter()
    }

    /// Returns the number of samples.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the delays.
    pub(crate) fn delays(&self) -> Recorder {
        let mut delays = Recorder::default();
        for sample in &self.list {
            delays.record(sample.delay_ns, 1);
        }
        delays
    }

    /// Returns each delay of one stream minus the smallest (RFC 5481, section 4.2).
    pub(crate) fn pdv(&self) -> Recorder {
        let mut pdv = Recorder::default();
        let delays = || self.list.iter().map(|sample| sample.delay_ns);
        if let Some(min) = delays().min() {
            delays().for_each(|delay| pdv.record(delay.saturating_sub(min), 1));
        }
        pdv
    }

    /// Returns each delay of one stream minus the delay of the preceding frame, if that frame was received (RFC 5481, section 4.1).
    pub(crate) fn ipdv(&self) -> SignedRecorder {
        let mut ipdv = SignedRecorder::default();
        for pair in self.list.windows(2) {
            let [first, second] = pair else { continue };
            if first.sequence.wrapping_add(1) == second.sequence {
                let (before, after) = (first.delay_ns.cast_signed(), second.delay_ns.cast_signed());
                ipdv.record(after.wrapping_sub(before), 1);
            }
        }
        ipdv
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_a_stream_worked_out_by_hand() {
        let mut samples = Samples::with_capacity(6);
        for (port, sequence, delay_ns) in
            [(1, 0, 5), (0, 2, 130), (0, 0, 100), (0, 1, 110), (0, 4, 90)]
        {
            samples.add(Sample {
                port,
                sequence,
                delay_ns,
            });
        }
        let stream = samples.of_port(0);
        // 110 - 100 and 130 - 110. Frame 3 is lost, so frame 4 has no value.
        let ipdv = stream.ipdv().summary(2).unwrap();
        assert_eq!(
            (ipdv.samples, ipdv.min_ns, ipdv.max_ns, ipdv.mean_ns),
            (2, 10, 20, 15.0)
        );
        let pdv = stream.pdv().summary().unwrap();
        assert_eq!(
            (pdv.samples, pdv.min_ns, pdv.max_ns, pdv.mean_ns),
            (4, 0, 40, 17.5)
        );
        assert_eq!(stream.delays().summary().unwrap().max_ns, 130);
    }

    #[test]
    fn a_full_list_takes_no_more() {
        let mut samples = Samples::with_capacity(1);
        let space = samples.list.capacity();
        for sequence in 0..10 {
            samples.add(Sample {
                port: 0,
                sequence,
                delay_ns: 1,
            });
        }
        assert_eq!((samples.len(), samples.list.capacity()), (space, space));
    }
}
