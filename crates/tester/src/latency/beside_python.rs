// SPDX-License-Identifier: Apache-2.0
//! Histograms compared with the decoder of PyPI's `hdrhistogram` package, which tools for CSIT and TRex use.

use std::cell::RefCell;
use std::process::Command;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Recorder, SignedRecorder};

/// Reads one histogram per line, and prints value and count of each non-empty bucket.
const SCRIPT: &str = r"
import sys
from hdrh.histogram import HdrHistogram
for line in sys.argv[1:]:
    histogram = HdrHistogram.decode(line)
    items = histogram.get_recorded_iterator()
    print(histogram.total_count, *(f'{histogram.get_lowest_equivalent_value(i.value_iterated_to)}:{i.count_added_in_this_iter_step}' for i in items))
";

/// Returns the output of the package's decoder.
fn read_by_python(encoded: &[String]) -> Vec<String> {
    let python = std::env::var("QUIETWIRE_PYTHON")
        .expect("set QUIETWIRE_PYTHON to a Python with hdrhistogram (`make test` installs one)");
    let output = Command::new(&python)
        .arg("-c")
        .arg(SCRIPT)
        .args(encoded)
        .output()
        .unwrap();
    let (text, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(text).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn expected(recorder: &Recorder) -> String {
    let counts = recorder
        .counts()
        .map(|(value, count)| format!(" {value}:{count}"));
    format!("{}{}", recorder.samples(), counts.collect::<String>())
}

#[test]
fn python_reads_the_same_counts() {
    let values = prop::collection::vec((0u64..1 << 39, 0u32..39, 1u64..1_000_000), 1..400);
    let all = RefCell::new(Vec::new());
    TestRunner::new(Config {
        cases: 20,
        failure_persistence: None,
        ..Config::default()
    })
    .run(&values, |values| {
        let (mut plain, mut signed) = (Recorder::default(), SignedRecorder::default());
        for (value, shift, count) in values {
            plain.record(value >> shift, count);
            signed.record(-(value >> shift).cast_signed() - 1, count);
        }
        all.borrow_mut().push((
            plain.summary().unwrap().histogram_v2_base64,
            expected(&plain),
        ));
        let negative = signed.summary(0).unwrap().negative_histogram_v2_base64;
        all.borrow_mut()
            .push((negative, expected(&signed.negative)));
        Ok(())
    })
    .unwrap();
    let (encoded, expected): (Vec<String>, Vec<String>) = all.into_inner().into_iter().unzip();
    assert_eq!(read_by_python(&encoded), expected);
}
