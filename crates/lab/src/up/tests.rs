// SPDX-License-Identifier: Apache-2.0
//! Tests of taking labs down and of aborting their start.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quietwire_host::journal::Journal;

use super::*;
use crate::programs::tests::plan;
use crate::testing::Scripts;

/// Returns an element for that script, in a separate directory.
fn element(directory: &Path, name: &str, text: String) -> Running {
    let own = directory.join(name);
    std::fs::create_dir(&own).unwrap();
    Running {
        plan: Plan {
            name: name.to_owned(),
            ..plan(&own)
        },
        forwarder: Box::new(Scripts {
            scripts: vec![("log", text)],
            ..Scripts::default()
        }),
        version: String::new(),
        commands: Vec::new(),
    }
}

fn start(running: &mut Running, directory: &Path, stop: Stop) -> Result<(), LabError> {
    let mut journal = Journal::open(&directory.join("journal")).unwrap();
    let mut commands = Vec::new();
    let mut context = ElementContext::new(&mut journal, &mut commands);
    context.stop = stop;
    running.step(&mut context, |forwarder, plan, context| {
        forwarder.start(plan, context)
    })
}

#[test]
fn all_are_asked_to_end_before_the_first_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let [asked, ended] = ["asked", "ended"].map(|name| directory.path().join(name));
    let (asked_file, ended_file) = (asked.display(), ended.display());
    // This one is waited for last, and the other one exits only after this one got its signal.
    let last = format!("trap 'touch {asked_file}; exit' TERM");
    let first = format!(
        "trap 'until [ -e {asked_file} ]; do sleep 0.02; done; touch {ended_file}; exit' TERM"
    );
    let mut running = Vec::new();
    for (name, trap) in [("last", last), ("first", first)] {
        let script = format!("{trap}; echo ready; while :; do sleep 0.02; done");
        let mut element = element(directory.path(), name, script);
        start(&mut element, directory.path(), Stop::default()).unwrap();
        running.push(element);
    }
    end(&mut running, None).unwrap();
    assert!(ended.exists(), "it was killed, and not waited for");
}

#[test]
fn a_start_is_aborted_by_the_stop_flag() {
    let directory = tempfile::tempdir().unwrap();
    let flag = Arc::new(AtomicBool::new(false));
    let mut element = element(directory.path(), "never", "exec sleep 600".to_owned());
    let setter = Arc::clone(&flag);
    let began = Instant::now();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        setter.store(true, Ordering::Relaxed);
    });
    let outcome = start(&mut element, directory.path(), Stop::from(&flag));
    later.join().unwrap();
    assert!(matches!(outcome, Err(LabError::Aborted)), "{outcome:?}");
    // Half of the start timeout.
    assert!(began.elapsed() < Duration::from_secs(30));
    end(&mut vec![element], None).unwrap();
}
