// SPDX-License-Identifier: Apache-2.0
//! CPUs of the machine at their places, with the threads that ran on them: nodes as boxes, the CPUs of a core in a box of their own. A
//! darker CPU was busier.

use maud::{Markup, html};

use super::{px, shortened};
use crate::format;

/// A CPU to draw.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DrawnCpu {
    /// Its number.
    pub(crate) cpu: u32,
    /// Package and NUMA node, if known.
    pub(crate) place: (Option<i32>, Option<u32>),
    /// Core in its package, if known.
    pub(crate) core: Option<i32>,
    /// Roles in the study file; empty for none.
    pub(crate) roles: String,
    /// Share of the time that it was busy, 0 to 1, if known.
    pub(crate) busy: Option<f64>,
    /// Threads with their shares, the busiest first.
    pub(crate) threads: Vec<String>,
}

const WIDTH: f64 = 860.0;
const MARGIN: f64 = 10.0;
/// Height of the title of a node.
const TITLE: f64 = 24.0;
const CPU_WIDTH: f64 = 196.0;
const LINE: f64 = 17.0;
/// Threads that are written into a CPU. The others are in its title.
const THREADS_SHOWN: usize = 2;
const CPU_HEIGHT: f64 = LINE * (THREADS_SHOWN as f64 + 1.0) + 8.0;
/// Space around the CPUs of a core.
const PAD: f64 = 4.0;
const CORES_IN_A_ROW: usize = 4;
/// Characters of a line in a CPU.
const LETTERS: usize = 26;
/// Opacity of a CPU that was busy all the time: text stays readable on it.
const DARKEST: f64 = 0.4;

/// A box around a node or a core.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    title: Option<String>,
}

/// A CPU at its position.
struct Located<'a> {
    left: f64,
    top: f64,
    cpu: &'a DrawnCpu,
}

/// Frames and CPUs of a picture, and its height.
struct Layout<'a> {
    frames: Vec<Frame>,
    cpus: Vec<Located<'a>>,
    height: f64,
}

/// Returns consecutive CPUs with the same key together.
fn grouped<'a, K: PartialEq>(
    cpus: &[&'a DrawnCpu],
    key: impl Fn(&DrawnCpu) -> K,
) -> Vec<Vec<&'a DrawnCpu>> {
    cpus.chunk_by(|one, other| key(one) == key(other))
        .map(<[&DrawnCpu]>::to_vec)
        .collect()
}

fn title((package, node): (Option<i32>, Option<u32>)) -> String {
    let package = package.map(|package| format!("package {package}"));
    let node = node.map(|node| format!("node {node}"));
    let known: Vec<String> = package.into_iter().chain(node).collect();
    if known.is_empty() {
        "CPUs".to_owned()
    } else {
        known.join(", ")
    }
}

impl<'a> Layout<'a> {
    fn of(cpus: &'a [DrawnCpu]) -> Self {
        let mut sorted: Vec<&DrawnCpu> = cpus.iter().collect();
        sorted.sort_by_key(|cpu| (cpu.place, cpu.core, cpu.cpu));
        let mut layout = Self {
            frames: Vec::new(),
            cpus: Vec::new(),
            height: 0.0,
        };
        for node in grouped(&sorted, |cpu| cpu.place) {
            layout.node(&node);
        }
        layout
    }

    /// Adds a node below the others.
    fn node(&mut self, cpus: &[&'a DrawnCpu]) {
        let top = self.height;
        self.height += TITLE;
        // A CPU without a known core has a box of its own.
        let cores = grouped(cpus, |cpu| {
            (cpu.core, cpu.core.is_none().then_some(cpu.cpu))
        });
        let own = self.frames.len();
        for row in cores.chunks(CORES_IN_A_ROW) {
            let most = row.iter().map(Vec::len).max().unwrap_or(0);
            for (column, core) in row.iter().enumerate() {
                let left = MARGIN + (CPU_WIDTH + 2.0 * PAD + MARGIN / 2.0) * column as f64;
                self.core(left, core);
            }
            self.height += CPU_HEIGHT * most as f64 + 2.0 * PAD + MARGIN / 2.0;
        }
        let frame = Frame {
            left: 0.0,
            top,
            width: WIDTH,
            height: self.height - top,
            title: cpus.first().map(|cpu| title(cpu.place)),
        };
        // Before the frames of its cores.
        self.frames.insert(own, frame);
        self.height += MARGIN;
    }

    fn core(&mut self, left: f64, cpus: &[&'a DrawnCpu]) {
        let top = self.height;
        self.frames.push(Frame {
            left,
            top,
            width: CPU_WIDTH + 2.0 * PAD,
            height: CPU_HEIGHT * cpus.len() as f64 + 2.0 * PAD,
            title: None,
        });
        let placed = cpus
            .iter()
            .copied()
            .enumerate()
            .map(|(index, cpu)| Located {
                left: left + PAD,
                top: top + PAD + CPU_HEIGHT * index as f64,
                cpu,
            });
        self.cpus.extend(placed);
    }
}

/// Draws the CPUs.
pub(crate) fn machine(description: &str, cpus: &[DrawnCpu]) -> Markup {
    let layout = Layout::of(cpus);
    html! {
        svg.chart.wide viewBox={ "0 0 " (WIDTH) " " (px(layout.height)) } role="img" aria-label=(description) {
            @for frame in &layout.frames {
                rect.grid fill="none" x=(px(frame.left)) y=(px(frame.top)) width=(px(frame.width)) height=(px(frame.height)) rx="4" {}
                @if let Some(title) = &frame.title {
                    text.group x=(px(frame.left + MARGIN)) y=(px(frame.top + 17.0)) { (title) }
                }
            }
            @for placed in &layout.cpus { (one(placed)) }
        }
    }
}

/// Returns the heading of a CPU: `CPU 3 · forwarding`.
fn heading(cpu: &DrawnCpu) -> String {
    match cpu.roles.as_str() {
        "" => format!("CPU {}", cpu.cpu),
        roles => format!("CPU {} · {roles}", cpu.cpu),
    }
}

fn one(placed: &Located<'_>) -> Markup {
    let cpu = placed.cpu;
    let busy = cpu.busy.unwrap_or(0.0).clamp(0.0, 1.0);
    let use_text = cpu.busy.map_or_else(
        || "use unknown".to_owned(),
        |busy| format!("{} busy", format::percent(busy * 100.0)),
    );
    let threads = match cpu.threads.len() {
        0 => "no watched thread".to_owned(),
        _ => cpu.threads.join(", "),
    };
    let (x, y) = (placed.left + 6.0, placed.top + LINE - 2.0);
    html! {
        g {
            title { (heading(cpu)) ": " (use_text) "; " (threads) }
            rect.heat x=(px(placed.left)) y=(px(placed.top)) width=(px(CPU_WIDTH)) height=(px(CPU_HEIGHT - 2.0))
                fill-opacity=(format!("{:.2}", busy * DARKEST)) rx="3" {}
            text.label x=(px(x)) y=(px(y)) { (shortened(&heading(cpu), LETTERS)) }
            @for (index, thread) in cpu.threads.iter().take(THREADS_SHOWN).enumerate() {
                text.note x=(px(x)) y=(px(y + LINE * (index as f64 + 1.0))) { (shortened(thread, LETTERS)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(number: u32, node: u32, core: i32, threads: &[&str]) -> DrawnCpu {
        DrawnCpu {
            cpu: number,
            place: (Some(0), Some(node)),
            core: Some(core),
            busy: Some(0.5),
            threads: threads.iter().map(|name| (*name).to_owned()).collect(),
            ..DrawnCpu::default()
        }
    }

    #[test]
    fn cpus_are_at_their_nodes_and_cores_with_their_threads() {
        let cpus = [
            cpu(0, 0, 0, &["tester <t> 90 %"]),
            cpu(2, 0, 0, &[]),
            cpu(1, 1, 1, &["a", "b", "c"]),
        ];
        let layout = Layout::of(&cpus);
        // Two nodes with a core each; both CPUs of the first core have the same column.
        assert_eq!(layout.frames.len(), 4);
        let titles: Vec<&str> = layout
            .frames
            .iter()
            .filter_map(|frame| frame.title.as_deref())
            .collect();
        assert_eq!(titles, ["package 0, node 0", "package 0, node 1"]);
        let at: Vec<(u32, f64)> = layout
            .cpus
            .iter()
            .map(|one| (one.cpu.cpu, one.left))
            .collect();
        assert_eq!(at, [(0, 14.0), (2, 14.0), (1, 14.0)]);
        assert!(layout.cpus[0].top < layout.cpus[1].top);
        for placed in &layout.cpus {
            assert!(placed.top + CPU_HEIGHT <= layout.height);
            assert!(placed.left + CPU_WIDTH <= WIDTH);
        }
        let svg = machine("CPUs of c", &cpus).into_string();
        assert_eq!(svg.matches("class=\"heat\"").count(), 3);
        assert!(svg.contains("tester &lt;t&gt; 90 %"), "{svg}");
        assert!(svg.contains("; a, b, c</title>"), "{svg}");
        // The third thread is in the title only.
        assert_eq!(svg.matches(">c</text>").count(), 0);
    }

    #[test]
    fn cpus_without_a_known_place_fit_in_rows() {
        let cpus: Vec<DrawnCpu> = (0..9)
            .map(|number| DrawnCpu {
                cpu: number,
                ..DrawnCpu::default()
            })
            .collect();
        let layout = Layout::of(&cpus);
        assert_eq!(layout.frames.len(), 1 + 9);
        let rows: std::collections::BTreeSet<u64> =
            layout.cpus.iter().map(|one| one.top.to_bits()).collect();
        assert_eq!(rows.len(), 3);
        let svg = machine("CPUs", &cpus).into_string();
        assert!(svg.contains("use unknown; no watched thread"));
    }
}
