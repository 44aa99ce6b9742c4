// SPDX-License-Identifier: Apache-2.0
//! The list of all samples: what low-rate streams are worked out from, and what the quick ways are checked against.

use super::recorder::Recorder;
use super::signed::SignedRecorder;

/// One frame that came back, its first copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sample {
    /// Index of the port that sent it.
    pub(crate) port: u8,
    /// Its place in the stream.
    pub(crate) sequence: u32,
    /// Nanoseconds.
    pub(crate) delay_ns: u64,
}

/// Samples of streams, one stream from each port, in the order of their arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    list: Vec<Sample>,
}

impl Samples {
    /// Room for so many samples: it takes no more, since the packet path allocates nothing.
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

    /// Adds what another list holds.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.list.extend_from_slice(&other.list);
    }

    /// The samples of the stream that one port sent, in the order in which they were sent.
    pub(crate) fn of_port(&self, port: u8) -> Self {
        let of_port = self.list.iter().filter(|sample| sample.port == port);
        let mut list: Vec<Sample> = of_port.copied().collect();
        list.sort_unstable();
        Self { list }
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The delays.
    pub(crate) fn delays(&self) -> Recorder {
        let mut delays = Recorder::default();
        for sample in &self.list {
            delays.record(sample.delay_ns, 1);
        }
        delays
    }

    /// Of one stream's samples in order, each delay less the smallest (RFC 5481, section 4.2).
    pub(crate) fn pdv(&self) -> Recorder {
        let mut pdv = Recorder::default();
        let delays = || self.list.iter().map(|sample| sample.delay_ns);
        if let Some(min) = delays().min() {
            delays().for_each(|delay| pdv.record(delay - min, 1));
        }
        pdv
    }

    /// Of one stream's samples in order, each delay less that of the frame sent just before, where that one came back
    /// (RFC 5481, section 4.1).
    pub(crate) fn ipdv(&self) -> SignedRecorder {
        let mut ipdv = SignedRecorder::default();
        for pair in self.list.windows(2) {
            let [first, second] = pair else { continue };
            if first.sequence.wrapping_add(1) == second.sequence {
                ipdv.record(
                    second.delay_ns.cast_signed() - first.delay_ns.cast_signed(),
                    1,
                );
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
        // 110 - 100 and 130 - 110; frame 3 is lost, so 4 has none.
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
        let room = samples.list.capacity();
        for sequence in 0..10 {
            samples.add(Sample {
                port: 0,
                sequence,
                delay_ns: 1,
            });
        }
        assert_eq!((samples.len(), samples.list.capacity()), (room, room));
    }
}
