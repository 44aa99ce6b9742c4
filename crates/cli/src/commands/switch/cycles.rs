// SPDX-License-Identifier: Apache-2.0
//! `switch show cycles`: CPU cycles of forwarding threads since their start or in an interval.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use quietwire_switch::control::{Request, Subject, ask};
use quietwire_switch::report::{CyclesReport, QueueCycles, StepCounts, ThreadCycles};

use super::table::table;

/// Returns the counters since the start, or those of an interval that begins now.
pub(super) fn observe(socket: &Path, interval: Option<Duration>) -> Result<CyclesReport> {
    let look = || -> Result<CyclesReport> { Ok(ask(socket, &Request::Show(Subject::Cycles))?) };
    let before = look()?;
    let Some(interval) = interval else {
        return Ok(before);
    };
    std::thread::sleep(interval);
    Ok(difference(look()?, &before))
}

/// Returns the counters since `before`. Threads and queues that are missing in `before` started later.
fn difference(mut now: CyclesReport, before: &CyclesReport) -> CyclesReport {
    now.uptime_s -= before.uptime_s;
    for thread in &mut now.threads {
        let Some(before) = before.threads.iter().find(|one| one.cpu == thread.cpu) else {
            continue;
        };
        for (step, before) in thread.steps.iter_mut().zip(&before.steps) {
            step.cycles = step.cycles.saturating_sub(before.cycles);
            step.bursts = step.bursts.saturating_sub(before.bursts);
            step.frames = step.frames.saturating_sub(before.frames);
        }
    }
    for queue in &mut now.queues {
        let same = |one: &&QueueCycles| one.port == queue.port && one.queue == queue.queue;
        let Some(before) = before.queues.iter().find(same) else {
            continue;
        };
        queue.frames = queue.frames.saturating_sub(before.frames);
        for (bursts, before) in queue.burst_sizes.iter_mut().zip(before.burst_sizes) {
            *bursts = bursts.saturating_sub(before);
        }
    }
    now
}

/// Formats tables of the steps of threads and of the burst sizes of queues.
pub(super) fn render(report: &CyclesReport) -> String {
    let header = [
        "cpu",
        "step",
        "time %",
        "bursts",
        "frames/burst",
        "cycles/burst",
        "cycles/frame",
    ];
    let mut steps = table(header, 2);
    for thread in &report.threads {
        let all: u64 = thread.steps.iter().map(|step| step.cycles).sum();
        for step in thread.steps.iter().filter(|step| step.cycles > 0) {
            steps.add_row(step_row(thread, step, all));
        }
    }
    let header = [
        "port", "queue", "frames", "1", "2", "3-4", "5-8", "9-16", "17-32", "33-64",
    ];
    let mut queues = table(header, 2);
    for queue in &report.queues {
        let bursts: u64 = queue.burst_sizes.iter().sum();
        let mut row = vec![
            queue.port.clone(),
            queue.queue.to_string(),
            queue.frames.to_string(),
        ];
        row.extend(queue.burst_sizes.map(|count| match bursts {
            0 => "-".to_owned(),
            _ => format!("{:.1} %", 100.0 * count as f64 / bursts as f64),
        }));
        queues.add_row(row);
    }
    format!("{steps}\n\nBurst sizes of polls that found frames:\n{queues}")
}

fn step_row(thread: &ThreadCycles, step: &StepCounts, all: u64) -> [String; 7] {
    let ratio = |a: u64, b: u64| match b {
        0 => "-".to_owned(),
        _ => format!("{:.1}", a as f64 / b as f64),
    };
    [
        thread.cpu.to_string(),
        step.step.clone(),
        format!("{:.2}", 100.0 * step.cycles as f64 / all as f64),
        step.bursts.to_string(),
        ratio(step.frames, step.bursts),
        ratio(step.cycles, step.bursts),
        ratio(step.cycles, step.frames),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(cycles: u64, frames: u64) -> CyclesReport {
        let step = StepCounts {
            step: "bridge".to_owned(),
            cycles,
            bursts: frames / 4,
            frames,
        };
        CyclesReport {
            uptime_s: cycles as f64,
            hz: 1000,
            threads: vec![ThreadCycles {
                cpu: 3,
                steps: vec![step],
            }],
            queues: vec![QueueCycles {
                port: "a".to_owned(),
                queue: 0,
                cpu: Some(3),
                frames,
                burst_sizes: [0, 0, frames / 4, 0, 0, 0, 0],
            }],
        }
    }

    #[test]
    fn an_interval_is_what_came_after_its_beginning() {
        assert_eq!(
            difference(report(500, 40), &report(100, 8)),
            report(400, 32)
        );
        let empty = CyclesReport::default();
        assert_eq!(difference(report(500, 40), &empty), report(500, 40));
    }

    #[test]
    fn tables_have_the_time_and_the_bursts() {
        let text = render(&report(400, 32));
        assert!(text.contains("12.5"), "cycles per frame: {text}");
        assert!(text.contains("100.0 %"), "bursts of 3 and 4: {text}");
        // No frame has been received yet.
        assert!(!render(&report(0, 0)).contains("NaN"));
    }
}
