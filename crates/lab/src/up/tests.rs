// SPDX-License-Identifier: Apache-2.0
//! Tests of taking labs down and of aborting their start.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quietwire_host::journal::Journal;
use quietwire_tester::account::ElementCounts;

use super::*;
use crate::element::Process;
use crate::programs::tests::plan;
use crate::thread::DeviceThread;

/// A script instead of a forwarding program. It is up when it prints "ready".
#[derive(Debug)]
struct Script {
    text: String,
    processes: Vec<Process>,
}

impl Forwarder for Script {
    fn probe(&self) -> Result<String, Unavailable> {
        Ok(String::new())
    }

    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        let words = ["sh", "-c", &self.text].map(str::to_owned);
        self.processes
            .push(context.spawn(plan, "log", &[], &words)?);
        let log = plan.directory.join("log");
        context.wait_until(
            plan,
            &mut self.processes,
            "say so",
            || match std::fs::read_to_string(&log) {
                Ok(printed) if printed.contains("ready") => Ok(()),
                Ok(printed) => Err(printed),
                Err(error) => Err(error.to_string()),
            },
        )
    }

    fn frames(&self, _plan: &Plan, _deadline: Deadline) -> Result<ElementCounts, String> {
        Err("a script counts none".to_owned())
    }

    fn threads(&self, _plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        Ok(Vec::new())
    }

    fn configuration(&self, _plan: &Plan) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }
}

/// Returns an element for that script, in a separate directory.
fn element(directory: &Path, name: &str, text: String) -> Running {
    let own = directory.join(name);
    std::fs::create_dir(&own).unwrap();
    Running {
        plan: Plan {
            name: name.to_owned(),
            ..plan(&own)
        },
        forwarder: Box::new(Script {
            text,
            processes: Vec::new(),
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
fn what_comes_up_is_given_up_at_once_when_everything_is_to_end() {
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
