// SPDX-License-Identifier: Apache-2.0
//! Studies of switches and of service chains that docs/performance.md shows: the part of `quietwire study report --json` that the page
//! needs, its table, and the goals of the study of switches.

use std::fmt::Write as _;
use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::record::write_json;
use super::spread::{Estimate, ROUNDS_MIN, Spread};
use super::verdict::{Bound, Judged, Verdict};

/// Study of switches, the one with goals.
const SHOOTOUT: &str = "switch-shootout";

/// Studies with a part of the page.
pub(crate) const STUDIES: [&str; 4] = [
    SHOOTOUT,
    "firewall-and-nat",
    "ovs-service-function",
    "service-chain",
];

/// Cycles for a frame above which the tester must be faster than the switch.
const CYCLES_MAX: f64 = 90.0;

/// State of a study that has all its trials.
const FINISHED: &str = "finished";

/// A study with its conditions and results. Reports have more keys, which a stored study does not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Study {
    /// Start, UTC, to the second. A report has it as [`Summary::started_unix_ns`] only.
    #[serde(default)]
    pub(crate) date: String,
    /// Runs of the study, each a start of the command.
    runs: Vec<StudyRun>,
    pub(crate) summary: Summary,
}

/// Machine and software of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StudyRun {
    machine: Machine,
    versions: Versions,
}

/// The machine, as far as its kernel reported it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Machine {
    cpu_model: Option<String>,
    cpus_online: Option<String>,
    memory_mib: Option<u64>,
    kernel_release: Option<String>,
    is_virtual: Option<bool>,
}

/// Versions of programs, each as the program prints it; none if it is not installed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Versions {
    quietwire: String,
    dpdk: Option<String>,
    open_vswitch: Option<String>,
    vpp: Option<String>,
}

/// Results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) name: String,
    pub(crate) started_unix_ns: u64,
    state: State,
    is_simulated: bool,
    is_quick: bool,
    rounds: u32,
    trials: u64,
    invalid_trials: u64,
    /// Cases that the machine does not support.
    unavailable: Vec<Unavailable>,
    pub(crate) sizes: Vec<Size>,
}

/// State of the study: `finished`, `interrupted`, `failed` or `unfinished`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    state: String,
}

/// A case that was not measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Unavailable {
    name: String,
    reason: String,
}

/// Results at one frame size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Size {
    /// Octets with FCS, or `imix`.
    frame_size: String,
    pub(crate) cases: Vec<Case>,
    /// Ranks of comparable cases, a ranking for each goal.
    #[serde(default)]
    rankings: Vec<Ranking>,
}

/// Ranks of comparable cases for one goal.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Ranking {
    goal: String,
    cases: Vec<Ranked>,
}

/// Rank of a case; none if its rate is a lower bound.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Ranked {
    name: String,
    rank: Option<u64>,
}

/// A switch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// Switch, topology and links.
    description: String,
    goals: Vec<Goal>,
    /// Limit of the rate of each goal.
    limits: Vec<Option<Limit>>,
    /// Cycles by the account of the switch itself.
    own_cycles: Option<Cycles>,
    /// CPU time divided by forwarded frames.
    cpu_cycles: Option<Cycles>,
    cpu_rate: Option<CpuRate>,
    /// Cost of a frame in the switch and in each function of a chain; empty without functions that count their cycles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    functions: Vec<FunctionCost>,
}

/// Cost of a frame in the switch, or in the functions at a position of a chain.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct FunctionCost {
    /// Name of the switch, or position and program of the functions.
    function: String,
    /// Cycles for each frame that the part received.
    cycles: Spread,
    /// Cycles for each frame that the whole chain forwarded.
    cycles_per_forwarded: Option<Spread>,
}

/// Rate that met a goal.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Goal {
    name: String,
    rate_pps: Option<Values>,
    is_lower_limit_only: bool,
}

/// Limit of a rate, with the idle time of both sides.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Limit {
    by: Limiter,
    device_idle_ratio: Option<Values>,
    tester_idle_ratio: Option<Values>,
}

/// Side that limited a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Limiter {
    Tester,
    DeviceCpu,
    Device,
    NotDeviceCpu,
}

/// Cycles that a frame takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cycles {
    cycles: Values,
    cycle_source: CycleSource,
    /// With the nodes that receive frames, and their empty polls.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    with_input: Option<Values>,
}

/// Source of cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CycleSource {
    Counted,
    WithoutInput,
    CpuTime,
    AtMost,
}

/// Frames per second of CPU time.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CpuRate {
    rate_pps: Values,
    is_at_least: bool,
}

/// Values of rounds or trials.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Values {
    #[serde(flatten)]
    spread: Spread,
    values: Vec<f64>,
}

impl Values {
    fn mpps(&self) -> String {
        self.spread.text(1e6, 2)
    }

    fn cycles(&self) -> String {
        self.spread.text(1.0, 0)
    }
}

impl Limiter {
    fn word(self) -> &'static str {
        match self {
            Self::Tester => "tester",
            Self::DeviceCpu | Self::Device => "device",
            Self::NotDeviceCpu => "not the CPU",
        }
    }
}

impl Limit {
    fn text(&self) -> String {
        let idle = |side: &str, ratio: Option<&Values>| match ratio {
            Some(ratio) => format!("{side} idle {:.0} %", ratio.spread.median * 100.0),
            None => format!("{side} idle unknown"),
        };
        [
            self.by.word().to_owned(),
            idle("device", self.device_idle_ratio.as_ref()),
            idle("tester", self.tester_idle_ratio.as_ref()),
        ]
        .join(", ")
    }
}

impl Cycles {
    fn text(&self) -> String {
        let cycles = self.cycles.cycles();
        match (self.cycle_source, &self.with_input) {
            (CycleSource::Counted | CycleSource::CpuTime, _) => cycles,
            (CycleSource::WithoutInput, None) => format!("{cycles} without the input node"),
            (CycleSource::WithoutInput, Some(all)) => format!(
                "{cycles} without the input node, at most {} with it",
                all.cycles()
            ),
            (CycleSource::AtMost, _) => format!("at most {cycles}"),
        }
    }

    /// Returns the lowest and the highest number of cycles that a frame may take.
    fn bounds(&self) -> [f64; 2] {
        let median = self.cycles.spread.median;
        match self.cycle_source {
            CycleSource::Counted | CycleSource::CpuTime => [median; 2],
            CycleSource::WithoutInput => {
                let all = self.with_input.as_ref();
                [median, all.map_or(f64::INFINITY, |all| all.spread.median)]
            }
            CycleSource::AtMost => [0.0, median],
        }
    }
}

/// Why a case does not prove a goal, with its name.
enum Finding {
    /// It proves the opposite.
    Against(String),
    /// It proves neither.
    Open(String),
}

impl Case {
    /// Returns the goals with a rate, each with its limit.
    fn rates(&self) -> impl Iterator<Item = (&Goal, &Values, Option<&Limit>)> {
        let limits = self.limits.iter().map(Option::as_ref);
        // A search that is not finished has no limit.
        let limits = limits.chain(std::iter::repeat(None));
        let goals = self.goals.iter().zip(limits);
        goals.filter_map(|(goal, limit)| {
            let rate = goal.rate_pps.as_ref()?;
            (rate.spread.median > 0.0).then_some((goal, rate, limit))
        })
    }

    /// Returns the cycles of a frame: those by the switch's own account, if it has one.
    fn cost(&self) -> Option<&Cycles> {
        self.own_cycles.as_ref().or(self.cpu_cycles.as_ref())
    }

    /// Returns the cycles in each part of a chain: for each frame that the part received, and for each that the chain forwarded.
    fn parts(&self) -> [String; 2] {
        let joined = |cycles: fn(&FunctionCost) -> Option<&Spread>| {
            let parts = self.functions.iter().filter_map(|part| {
                let cycles = cycles(part)?.text(1.0, 0);
                Some(format!("{}: {cycles}", part.function))
            });
            let parts: Vec<String> = parts.collect();
            match parts.is_empty() {
                true => "unknown".to_owned(),
                false => parts.join("; "),
            }
        };
        [
            joined(|part| Some(&part.cycles)),
            joined(|part| part.cycles_per_forwarded.as_ref()),
        ]
    }

    /// Returns a finding if a rate is a lower bound, and the switch takes more than [`CYCLES_MAX`] for a frame or may do so.
    fn lower_bound(&self) -> Option<Finding> {
        let bounds = self
            .rates()
            .filter(|(goal, _, limit)| is_at_least(goal, *limit));
        let goals: Vec<&str> = bounds.map(|(goal, ..)| goal.name.as_str()).collect();
        if goals.is_empty() {
            return None;
        }
        let cost = self.cost();
        let [low, high] = cost.map_or([0.0, f64::INFINITY], Cycles::bounds);
        let cycles = cost.map_or_else(|| "unknown".to_owned(), Cycles::text);
        let name = format!(
            "{} ({}, cycles a frame: {cycles})",
            self.name,
            goals.join(" and ")
        );
        if low > CYCLES_MAX {
            Some(Finding::Against(name))
        } else {
            (high > CYCLES_MAX).then_some(Finding::Open(name))
        }
    }

    /// Returns a finding if the limit of a rate or the idle time of the tester is unknown.
    fn unknown_limit(&self) -> Option<Finding> {
        let unknown = self
            .rates()
            .filter(|(_, _, limit)| limit.is_none_or(|limit| limit.tester_idle_ratio.is_none()));
        let goals: Vec<&str> = unknown.map(|(goal, ..)| goal.name.as_str()).collect();
        (!goals.is_empty())
            .then(|| Finding::Against(format!("{} ({})", self.name, goals.join(" and "))))
    }

    /// Returns a finding if the rate at a full CPU is unknown or a lower bound.
    fn unknown_cpu_rate(&self) -> Option<Finding> {
        match &self.cpu_rate {
            None => Some(Finding::Against(self.name.clone())),
            Some(rate) => rate
                .is_at_least
                .then(|| Finding::Open(format!("{} (at least)", self.name))),
        }
    }
}

/// Returns true if a rate is a lower bound.
fn is_at_least(goal: &Goal, limit: Option<&Limit>) -> bool {
    goal.is_lower_limit_only || limit.is_some_and(|limit| limit.by == Limiter::Tester)
}

impl Size {
    /// Returns true if the cases have functions that count their cycles.
    fn is_of_chains(&self) -> bool {
        self.cases.iter().any(|case| !case.functions.is_empty())
    }

    /// Returns the cells of a case, three for each goal.
    fn cells(&self, case: &Case, goals: &[&str]) -> Vec<String> {
        let mut cells = vec![case.name.clone(), case.description.clone()];
        for name in goals {
            let found = case.rates().find(|(goal, ..)| goal.name == *name);
            cells.extend(match found {
                Some((goal, rate, limit)) => [
                    bound("at least", is_at_least(goal, limit), rate.mpps()),
                    self.rank(name, &case.name),
                    limit.map_or_else(|| "unknown".to_owned(), Limit::text),
                ],
                None => ["none", "", ""].map(str::to_owned),
            });
        }
        if self.is_of_chains() {
            cells.extend(case.parts());
            return cells;
        }
        let unknown = || "unknown".to_owned();
        let costs = [&case.own_cycles, &case.cpu_cycles];
        cells.extend(costs.map(|cost| cost.as_ref().map_or_else(unknown, Cycles::text)));
        let cpu_rate = case.cpu_rate.as_ref();
        cells.push(cpu_rate.map_or_else(unknown, |rate| {
            bound("at least", rate.is_at_least, rate.rate_pps.mpps())
        }));
        cells
    }

    /// Returns the rank of a case among those that are comparable; empty if it has none.
    fn rank(&self, goal: &str, case: &str) -> String {
        let rankings = self.rankings.iter().filter(|ranking| ranking.goal == goal);
        let mut cases = rankings.flat_map(|ranking| &ranking.cases);
        let rank = cases
            .find(|ranked| ranked.name == case)
            .and_then(|ranked| ranked.rank);
        rank.map_or_else(String::new, |rank| rank.to_string())
    }
}

/// Returns a figure, with the word of its bound if it is one.
fn bound(word: &str, is_bound: bool, figure: String) -> String {
    if is_bound {
        format!("{word} {figure}")
    } else {
        figure
    }
}

/// Returns a text that fits into a cell of a table.
fn in_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

impl Study {
    /// Reads a report or a stored study; none if the file is that of something else.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, String> {
        #[derive(Deserialize)]
        struct Kind {
            summary: Option<IgnoredAny>,
        }
        let at = |cause: &dyn std::fmt::Display| format!("{}: {cause}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| at(&error))?;
        let kind: Kind = serde_json::from_str(&text).map_err(|error| at(&error))?;
        if kind.summary.is_none() {
            return Ok(None);
        }
        let study = serde_json::from_str(&text).map_err(|error| at(&error))?;
        Ok(Some(study))
    }

    /// Refuses a study that the page does not show, and one without usable figures.
    pub(crate) fn check(&self) -> Result<(), String> {
        let summary = &self.summary;
        let name = summary.name.as_str();
        if !STUDIES.contains(&name) {
            return Err(format!(
                "the page does not show study '{name}' (it shows {})",
                STUDIES.join(", ")
            ));
        }
        if summary.is_simulated || summary.is_quick {
            let kind = if summary.is_simulated {
                "simulated"
            } else {
                "quick"
            };
            return Err(format!(
                "study '{name}' is {kind}, so its figures are not usable"
            ));
        }
        Ok(())
    }

    /// Writes the part of the study that the page shows.
    pub(crate) fn write(&self, path: &Path) -> std::io::Result<()> {
        write_json(self, path)
    }

    /// Returns the verdicts on the goals of the study of switches, which count the switches or rates that miss them. Other studies have
    /// none.
    pub(crate) fn judge(&self) -> Vec<Judged> {
        if self.summary.name != SHOOTOUT {
            return Vec::new();
        }
        vec![
            self.judged(
                "switches with a rate `at least` that take more than 90 cycles a frame",
                Case::lower_bound,
            ),
            self.judged(
                "switches with a rate whose limit is unknown",
                Case::unknown_limit,
            ),
            self.judged(
                "switches without frames per second at a full CPU",
                Case::unknown_cpu_rate,
            ),
        ]
    }

    fn judged(&self, goal: &str, find: fn(&Case) -> Option<Finding>) -> Judged {
        let cases = self.summary.sizes.iter().flat_map(|size| &size.cases);
        let is_measured = cases.clone().next().is_some();
        let (mut against, mut open) = (Vec::new(), Vec::new());
        for finding in cases.filter_map(find) {
            match finding {
                Finding::Against(name) => against.push(name),
                Finding::Open(name) => open.push(name),
            }
        }
        let [low, high] = [against.len(), against.len() + open.len()].map(|count| count as f64);
        let estimate = Estimate {
            value: low,
            low,
            high,
        };
        let verdict = match (against.is_empty(), open.is_empty()) {
            (false, _) => Verdict::Missed,
            (true, false) => Verdict::NotProven,
            (true, true) => Verdict::Met,
        };
        let (estimate, verdict, doubt) = match self.doubt() {
            _ if !is_measured => {
                let reason = "not measured in this run".to_owned();
                (None, Verdict::Unavailable, Some(reason))
            }
            Some(doubt) => (Some(estimate), Verdict::NotProven, Some(doubt)),
            None => (Some(estimate), verdict, None),
        };
        if !against.is_empty() && !open.is_empty() {
            against.push(format!("undecided: {}", open.join("; ")));
        } else {
            against.extend(open);
        }
        let names = (!against.is_empty()).then(|| against.join("; "));
        let reasons: Vec<String> = doubt.into_iter().chain(names).collect();
        Judged {
            goal: goal.to_owned(),
            peer: "-".to_owned(),
            bound: Bound::AtMost,
            wanted: 0.0,
            estimate,
            verdict,
            reason: (!reasons.is_empty()).then(|| in_cell(&reasons.join(": "))),
        }
    }

    /// Returns why the study proves nothing; none if it has all its trials, and enough rounds.
    fn doubt(&self) -> Option<String> {
        let Summary { state, rounds, .. } = &self.summary;
        if state.state != FINISHED {
            return Some(format!("the study is {}", state.state));
        }
        let is_short = u64::from(*rounds) < ROUNDS_MIN as u64;
        is_short.then(|| format!("{rounds} rounds; {ROUNDS_MIN} are required"))
    }

    /// Returns command, conditions and tables.
    pub(crate) fn text(&self) -> String {
        let command = format!("    sudo quietwire study run {}\n", self.summary.name);
        let tables = self.summary.sizes.iter().map(|size| self.table(size));
        let parts: Vec<String> = [command, self.circumstances()]
            .into_iter()
            .chain(tables)
            .collect();
        parts.join("\n")
    }

    /// Returns machine, software, date and number of trials in sentences.
    fn circumstances(&self) -> String {
        let mut known: Vec<String> = Vec::new();
        if let Some(StudyRun { machine, versions }) = self.runs.last() {
            known.extend(machine.cpu_model.clone());
            let kind = if machine.is_virtual == Some(true) {
                "virtual "
            } else {
                ""
            };
            let cpus = machine.cpus_online.as_ref();
            known.extend(cpus.map(|cpus| format!("{kind}CPUs {cpus}")));
            let memory = machine.memory_mib;
            known.extend(memory.map(|mib| format!("{} GiB", mib.div_ceil(1 << 10))));
            let kernel = machine.kernel_release.as_ref();
            known.extend(kernel.map(|kernel| format!("Linux {kernel}")));
            known.push(format!("quietwire {}", versions.quietwire));
            known.extend(versions.dpdk.clone());
            known.extend(versions.open_vswitch.clone());
            known.extend(versions.vpp.clone());
        }
        let summary = &self.summary;
        format!(
            "{}. {}: {} rounds, {} trials, of which {} are invalid.\n",
            known.join(", "),
            self.date,
            summary.rounds,
            summary.trials,
            summary.invalid_trials
        )
    }

    /// Returns the figures of all cases, and the reasons of those that were not measured.
    fn table(&self, size: &Size) -> String {
        let goals = size.cases.first().map(|case| &case.goals);
        let goals = goals.into_iter().flatten().map(|goal| goal.name.as_str());
        let goals: Vec<&str> = goals.collect();
        let frames = match size.frame_size.parse::<u16>() {
            Ok(octets) => format!("{octets} B"),
            Err(_) => size.frame_size.clone(),
        };
        let is_of_switches = self.summary.name == SHOOTOUT;
        let subject = if is_of_switches { "switch" } else { "case" };
        let mut titles = vec![frames, subject.to_owned()];
        for goal in &goals {
            let columns = [
                format!("{goal}, Mpps"),
                "rank".to_owned(),
                "limited by".to_owned(),
            ];
            titles.extend(columns);
        }
        let costs: &[&str] = match size.is_of_chains() {
            true => &[
                "cycles for each frame that a part received",
                "cycles for each frame that the chain forwarded",
            ],
            false => &[
                "cycles a frame, own account",
                "cycles a frame, CPU time",
                "Mpps at a full CPU",
            ],
        };
        titles.extend(costs.iter().map(|title| (*title).to_owned()));
        let mut text = format!("| {} |\n", titles.join(" | "));
        text.push_str(&"|---".repeat(titles.len()));
        text.push_str("|\n");
        for case in &size.cases {
            let _ = writeln!(text, "| {} |", size.cells(case, &goals).join(" | "));
        }
        for absent in &self.summary.unavailable {
            let _ = writeln!(
                text,
                "| {} | unavailable: {} |{}",
                absent.name,
                in_cell(&absent.reason),
                "  |".repeat(titles.len() - 2)
            );
        }
        text
    }
}
