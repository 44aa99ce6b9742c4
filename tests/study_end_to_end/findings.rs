// SPDX-License-Identifier: Apache-2.0
//! Causes that are provoked on a running switch are named by findings.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quietwire_base::wait_until;
use quietwire_host::threads::set_affinity;
use quietwire_host::{CpuId, CpuList};
use serde_json::Value;

use super::*;

/// A study of one search at a rate that tester and switch reach on any machine. `device` is more of `[device]`.
fn study(device: &str, case: &str) -> String {
    format!("name = \"test\"\ntitle = \"A test\"\n{DEVICE}{device}\n{REST}{case}")
}

const DEVICE: &str = include_str!("../../crates/study/src/tests/device.toml");

const REST: &str = r#"
[trials]
duration-s = 0.6
warm-up-s = 0.1
drain-s = 0.1
max-rate-pps = 20_000
invalid-repeats = 20
[search]
start-rate-percent = 100
start-step-percent = 50
resolution-percent = 25
[[search.goal]]
name = "PDR"
loss-ratio = 0.5
[neighbours]
stressors = ["--cpu 2"]
"#;

/// Runs a study; returns rule and text of each finding.
fn findings(study: &str) -> Vec<(String, String)> {
    findings_in(&Workplace::new(), study)
}

fn findings_in(place: &Workplace, study: &str) -> Vec<(String, String)> {
    fs::write(place.path("study.toml"), study).unwrap();
    let output = place.study(&["--json"]).output().unwrap();
    found_in(place, &output)
}

/// Returns rule and text of each finding of a study that has ended.
fn found_in(place: &Workplace, output: &Output) -> Vec<(String, String)> {
    assert!(output.status.success(), "{}", words(output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = document["summary"]["findings"].as_array().unwrap();
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let found = all.iter().map(|one| (text(one, "rule"), text(one, "text")));
    let found: Vec<(String, String)> = found.collect();
    let page = fs::read_to_string(place.path("s.html")).unwrap();
    assert!(page.contains("<h2>Findings</h2>"), "{found:?}");
    let machine = &document["runs"][0]["machine"];
    assert_eq!(machine["monitors"]["threads"], "available");
    assert!(
        machine["settings"]["kernel"]["value"].is_string(),
        "{machine}"
    );
    place.assert_nothing_left();
    found
}

fn of_rule<'a>(found: &'a [(String, String)], rule: &str) -> &'a str {
    let one = found.iter().find(|(name, _)| name == rule);
    &one.unwrap_or_else(|| panic!("no '{rule}' in {found:?}")).1
}

#[test]
fn a_thread_that_sleeps_and_a_device_that_is_idle_are_found() {
    let case = "[[case]]\nname = \"a\"\nneighbours = \"none\"\nisolation = \"pinned\"\n";
    let found = findings(&study("idle = \"sleep\"", case));
    let slept = of_rule(&found, "system-calls");
    assert!(
        slept.contains("qw-fwd-") && slept.contains("gave up its CPU"),
        "{slept}"
    );
    assert!(of_rule(&found, "tester-limit").contains("PDR"), "{found:?}");
    assert!(
        of_rule(&found, "device-idle").contains("frames a burst"),
        "{found:?}"
    );
}

#[test]
fn a_thread_that_shares_its_cpu_with_sockets_is_found_preempted_and_its_cpu_in_softirqs() {
    // Elsewhere, the scheduler may give the neighbours to the CPU of the tester. Datagrams to the loopback interface are received in
    // softirqs of the CPU that sends them.
    let case = "[[case]]\nname = \"a\"\nneighbours = \"forwarding-cpus\"\nisolation = \"pinned\"\n";
    let found = findings(&study("", case).replace("--cpu 2", "--udp 1"));
    let preempted = of_rule(&found, "preempted");
    assert!(
        preempted.contains("qw-fwd-") && preempted.contains("stress-ng"),
        "{preempted}"
    );
    let softirqs = of_rule(&found, "softirqs");
    assert!(softirqs.starts_with("Forwarding CPU 1 "), "{softirqs}");
    assert!(
        found.iter().all(|(rule, _)| rule != "system-calls"),
        "{found:?}"
    );
}

#[test]
fn a_case_without_monitors_has_the_cycles_of_the_switch_and_times_of_frames() {
    let place = Workplace::new();
    let case = "[[case]]\nname = \"a\"\nneighbours = \"none\"\nisolation = \"pinned\"\nmonitors = \"none\"\n";
    fs::write(place.path("study.toml"), study("", case)).unwrap();
    let more = ["--json", "--timestamps", "times/of-all.pcapng"];
    let output = place.study(&more).output().unwrap();
    assert!(output.status.success(), "{}", words(&output));
    // A section header (block type 0x0a0d0d0a), and times of frames behind the interfaces.
    let times = fs::read(place.path("times/of-all.pcapng")).unwrap();
    assert_eq!(times.get(..4), Some(&[0x0a, 0x0d, 0x0d, 0x0a][..]));
    assert!(times.len() > 500, "{}", times.len());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let case = &document["summary"]["sizes"][0]["cases"][0];
    assert_eq!(case["cpus"].as_array().map(Vec::len), Some(0), "{case}");
    assert_eq!(case["threads"].as_array().map(Vec::len), Some(0), "{case}");
    assert_eq!(case["cycles"]["cycle_source"], "counted", "{case}");
    place.assert_nothing_left();
}

/// Returns the parent in a line of `/proc/PID/stat`: the second field after the name.
fn parent(process: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields = stat.rsplit_once(')')?.1;
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the numbers that a directory of `/proc` lists: processes or threads.
fn numbers(directory: &str) -> Vec<i32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.collect()
}

/// Returns a forwarding thread of a process.
fn forwarding_thread(process: i32) -> Option<i32> {
    let mut threads = numbers(&format!("/proc/{process}/task")).into_iter();
    threads.find(|thread| {
        let name = fs::read_to_string(format!("/proc/{process}/task/{thread}/comm"));
        name.unwrap_or_default().starts_with("qw-fwd-")
    })
}

/// Returns the switch of a study and its forwarding thread.
fn switch_of(study: i32) -> Option<(i32, i32)> {
    numbers("/proc").into_iter().find_map(|process| {
        let thread = forwarding_thread(process)?;
        let ancestors = std::iter::successors(Some(process), |process| parent(*process));
        // The first process has the parent 0, which is none.
        let is_of_study = ancestors.take(64).any(|ancestor| ancestor == study);
        is_of_study.then_some((process, thread))
    })
}

/// Runs the study of a place. Meanwhile `disturb` gets its process, and runs until the flag is set.
fn run_beside(place: &Workplace, disturb: fn(i32, &AtomicBool)) -> Output {
    let mut command = place.study(&["--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let study = i32::try_from(child.id()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = StopOnDrop(&stop);
        scope.spawn(|| disturb(study, &stop));
        child.wait_with_output().unwrap()
    })
}

/// Stops the switch of a study for 30 ms of each 100 ms, whatever else runs on its CPU, until the flag is set.
fn interrupt_switch(study: i32, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let switch = switch_of(study).map(|(switch, _)| Pid::from_raw(switch));
        // It may have ended since.
        if let Some(switch) = switch
            && kill(switch, Signal::SIGSTOP).is_ok()
        {
            sleep(Duration::from_millis(30));
            let _ = kill(switch, Signal::SIGCONT);
        }
        sleep(Duration::from_millis(70));
    }
}

#[test]
fn a_ring_of_a_switch_that_stops_and_idle_neighbours_are_found() {
    const STUDIES_MAX: usize = 4;
    let case = "[[case]]\nname = \"a\"\nneighbours = \"everywhere\"\nisolation = \"pinned\"\n";
    // The ring holds the frames of 6 ms.
    let text = study("rx-ring-size = 64", case).replace("--cpu 2", "--cpu 1 --cpu-load 1");
    // On a busy machine, the thread that stops the switch may run too seldom.
    let mut studies = (0..STUDIES_MAX).map(|_| {
        let place = Workplace::new();
        fs::write(place.path("study.toml"), &text).unwrap();
        let output = run_beside(&place, interrupt_switch);
        found_in(&place, &output)
    });
    let is_full = |found: &Vec<(String, String)>| found.iter().any(|(rule, _)| rule == "ring-full");
    let found = studies.find(is_full).expect("a ring that is full");
    let full = of_rule(&found, "ring-full");
    assert!(full.contains("receive ring of S "), "{full}");
    let starved = of_rule(&found, "neighbours-starved");
    assert!(starved.contains("got only"), "{starved}");
}

/// Moves the forwarding thread of a study's switch to CPU 0 and back ten times a second, until the flag is set.
fn move_thread(study: i32, stop: &AtomicBool) {
    const CALLER: i32 = 0;
    let cpu = |number: u32| CpuList::from_iter([CpuId(number)]);
    // During a trial, the tester has CPU 0 to itself.
    set_affinity(CALLER, &cpu(1)).unwrap();
    while !stop.load(Ordering::Relaxed) {
        if let Some((_, thread)) = switch_of(study) {
            // It may have ended since.
            let _ = set_affinity(thread, &cpu(0)).and_then(|()| set_affinity(thread, &cpu(1)));
        }
        sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_thread_that_moves_is_found() {
    let place = Workplace::new();
    let case = "[[case]]\nname = \"a\"\nneighbours = \"none\"\nisolation = \"none\"\n";
    fs::write(place.path("study.toml"), study("", case)).unwrap();
    let output = run_beside(&place, move_thread);
    let found = found_in(&place, &output);
    let moved = of_rule(&found, "migrated");
    assert!(moved.contains("qw-fwd-"), "{moved}");
}

/// Writes to the disk of this directory until the flag is set: each write waits for an interrupt of the disk.
fn write_through(directory: &Path, stop: &AtomicBool) {
    let mut file = tempfile::tempfile_in(directory).unwrap();
    while !stop.load(Ordering::Relaxed) {
        file.write_all(&[1; 4096]).unwrap();
        file.sync_all().unwrap();
        // More would take the disk from others.
        sleep(Duration::from_millis(2));
        if file.metadata().unwrap().len() > 1 << 20 {
            file = tempfile::tempfile_in(directory).unwrap();
        }
    }
}

/// Returns the interrupts of devices that CPUs 0 and 1 have served.
fn interrupts() -> BTreeMap<u32, u64> {
    let text = fs::read_to_string("/proc/interrupts").unwrap();
    let mut sums = BTreeMap::new();
    for line in text.lines().skip(1) {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        if !name
            .trim_end_matches(':')
            .bytes()
            .all(|octet| octet.is_ascii_digit())
        {
            continue;
        }
        for (cpu, count) in (0..2).zip(words) {
            *sums.entry(cpu).or_default() += count.parse::<u64>().unwrap_or(0);
        }
    }
    sums
}

/// Returns the CPU that serves the interrupts of a disk that is being written to.
fn cpu_of_disk() -> u32 {
    let before = interrupts();
    let grown = |cpu: u32| interrupts()[&cpu] - before[&cpu];
    let has_grown = wait_until(DEADLINE, || grown(0).max(grown(1)) > 100);
    assert!(has_grown, "the disk has no interrupts on CPU 0 or 1");
    u32::from(grown(1) > grown(0))
}

#[test]
#[ignore = "requires a disk whose interrupts CPU 0 or 1 serves; make test-all runs it"]
fn interrupts_of_a_disk_are_found() {
    // No other study runs beside the writes.
    let place = Workplace::new();
    let stop = AtomicBool::new(false);
    // Temporary files may be in memory.
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (cpu, found) = std::thread::scope(|scope| {
        let _end = StopOnDrop(&stop);
        scope.spawn(|| write_through(directory, &stop));
        let case = "[[case]]\nname = \"a\"\nneighbours = \"none\"\nisolation = \"pinned\"\n";
        let text = study("", case);
        let cpu = cpu_of_disk();
        // The device of studies in tests forwards on CPU 1.
        let text = match cpu {
            0 => text
                .replace("\"0\"", "\"other\"")
                .replace("\"1\"", "\"0\"")
                .replace("\"other\"", "\"1\""),
            _ => text,
        };
        (cpu, findings_in(&place, &text))
    });
    let served = of_rule(&found, "interrupts");
    assert!(
        served.starts_with(&format!("Forwarding CPU {cpu} ")),
        "{served}"
    );
}

/// Sets a flag, also if the test fails: a scope waits for its threads.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
