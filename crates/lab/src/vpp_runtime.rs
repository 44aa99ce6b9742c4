// SPDX-License-Identifier: Apache-2.0
//! Output of VPP's `show runtime`: calls, vectors and clocks of the nodes of its graph.

/// Name of the only thread of a VPP without workers.
const MAIN: &str = "vpp_main";
/// Start of the names of threads that forward.
const WORKER: &str = "vpp_wk";

/// Kind of a node, by its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// Polls for frames, or waits for interrupts. Its clocks include calls that find no frame.
    Input,
    /// Processes frames of other nodes. It is called only if it has frames.
    Internal,
    /// A process of the main thread.
    Process,
}

/// A node in the output: its counts since `clear runtime`, or since VPP started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'printed> {
    /// Name of its thread.
    pub(crate) thread: &'printed str,
    /// Its name.
    pub(crate) name: &'printed str,
    pub(crate) kind: NodeKind,
    /// Calls by the dispatcher.
    pub(crate) calls: u64,
    /// Frames that it processed.
    pub(crate) vectors: u64,
    /// Number of times that a process suspended itself.
    pub(crate) suspends: u64,
    /// Mean number of clocks for each vector; without vectors, for each call; without calls, for each suspension. Three significant digits.
    pub(crate) clocks: f64,
}

impl<'printed> Node<'printed> {
    /// Parses the line of a node: name, state of one or more words, calls, vectors, suspends, clocks and vectors for each call.
    fn parse(thread: &'printed str, words: &[&'printed str]) -> Option<Self> {
        let &[name, state, .., calls, vectors, suspends, clocks, per_call] = words else {
            return None;
        };
        // The second mean is only checked: it follows from the counts.
        per_call.parse::<f64>().ok()?;
        Some(Self {
            thread,
            name,
            kind: match state {
                "polling" | "interrupt" | "disabled" => NodeKind::Input,
                "active" => NodeKind::Internal,
                _ => NodeKind::Process,
            },
            calls: calls.parse().ok()?,
            vectors: vectors.parse().ok()?,
            suspends: suspends.parse().ok()?,
            clocks: clocks.parse().ok()?,
        })
    }

    /// Returns true for a node of a thread that forwards.
    pub(crate) fn is_of_worker(&self) -> bool {
        self.thread.starts_with(WORKER)
    }

    /// Returns the clocks of its vectors.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the cast saturates: a wrong text may have any number"
    )]
    pub(crate) fn cycles(&self) -> u64 {
        (self.clocks * self.vectors as f64).round() as u64
    }
}

/// Returns the name in the line of a thread, such as `Thread 1 vpp_wk_0 (lcore 2)`.
fn thread_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    (words.next()? == "Thread").then(|| words.nth(1)).flatten()
}

/// Returns true if the output has a thread that forwards.
pub(crate) fn has_worker(printed: &str) -> bool {
    let mut threads = printed.lines().filter_map(thread_name);
    threads.any(|name| name.starts_with(WORKER))
}

/// Parses the output of `show runtime` (vlib/node_cli.c, `format_vlib_node_stats`): a line for each thread if there are several, and after
/// it a line for each node that was active. Other lines have no nodes.
pub(crate) fn nodes(printed: &str) -> impl Iterator<Item = Node<'_>> {
    let mut thread = MAIN;
    printed.lines().filter_map(move |line| {
        if let Some(name) = thread_name(line) {
            thread = name;
            return None;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        Node::parse(thread, &words)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNTIME: &str = include_str!("../tests/corpus/vpp-runtime/cross-connect");

    #[test]
    fn nodes_have_their_thread_and_kind() {
        let found: Vec<Node<'_>> = nodes(RUNTIME).collect();
        let kinds = |thread: &str| -> Vec<(&str, NodeKind)> {
            let own = found.iter().filter(|node| node.thread == thread);
            own.map(|node| (node.name, node.kind)).collect()
        };
        // Newer versions quote the states of processes.
        let processes = kinds("vpp_main");
        assert!(processes.contains(&("ip6-ra-process", NodeKind::Process)));
        assert!(processes.contains(&("unix-cli-process-0", NodeKind::Process)));
        let wanted = [
            ("ethernet-input", NodeKind::Internal),
            ("l2-input", NodeKind::Internal),
            ("l2-output", NodeKind::Internal),
            ("memif-input", NodeKind::Input),
            ("memif2/0-output", NodeKind::Internal),
            ("memif2/0-tx", NodeKind::Internal),
            ("vhost-user-input", NodeKind::Input),
        ];
        assert_eq!(kinds("vpp_wk_0"), wanted);
        let is_worker = |node: &&Node<'_>| node.is_of_worker();
        assert_eq!(found.iter().filter(is_worker).count(), wanted.len());
        assert!(has_worker(RUNTIME) && !has_worker("Thread 0 vpp_main (lcore 0)\n"));
    }

    #[test]
    fn cycles_of_any_text_saturate() {
        let line = |clocks: &str| format!("a active 1 {} 0 {clocks} 1.0\n", u64::MAX);
        let cycles = |clocks: &str| nodes(&line(clocks)).next().unwrap().cycles();
        assert_eq!((cycles("1e300"), cycles("inf")), (u64::MAX, u64::MAX));
        assert_eq!((cycles("-1.0"), cycles("nan")), (0, 0));
        for wrong in [
            "Thread",
            "Thread 1",
            "a active 1 2 3 4",
            "a active 1 2 3 4 x",
        ] {
            assert!(nodes(wrong).next().is_none(), "{wrong}");
        }
    }
}
