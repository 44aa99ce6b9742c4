// SPDX-License-Identifier: Apache-2.0
//! Results in the JSON of FD.io CSIT, for programs that read its tests: one document for each search of NDR and PDR. docs/csit.md has the
//! mapping. Keys, types and relations are those of CSIT's test model (resources/model_schema/test_case.schema.yaml, `ndrpdr`), which a test
//! checks key by key; deployments have the names of OPNFV's vsperf.

use quietwire_search::{Findings, LatencyLoad};
use quietwire_study::{
    Case, FrameSize, Role, StepKind, StepRecord, StudyFile, StudyResults, TrialRecord,
};
use quietwire_tester::{LatencySummary, histogram_in_us};
use serde_json::{Map, Value, json};

use crate::error::ReportError;
use crate::format;
use crate::summary::{AROUND_FRAME, CaseSummary, GoalSummary, SearchOutcome, Summary};

/// Version of CSIT's test model.
const MODEL: &str = "1.5.1";
const BITS: f64 = 8.0;
/// Loads of the model's latency, which has all of them or none.
const LOADS: [&str; 4] = ["pdr_0", "pdr_10", "pdr_50", "pdr_90"];
/// Replaces a version that the store does not have. The model refuses empty ones.
const UNKNOWN: &str = "unknown";

/// One test of CSIT.
#[derive(Clone, Debug, PartialEq)]
pub struct CsitTest {
    /// Name of its file.
    pub file_name: String,
    /// Its document.
    pub document: Value,
}

/// Returns a test for each search of each case and frame size.
///
/// # Errors
/// [`ReportError::Histogram`] if a stored histogram is damaged.
pub fn csit(results: &StudyResults, summary: &Summary) -> Result<Vec<CsitTest>, ReportError> {
    let mut tests = Vec::new();
    let sizes = results.file.traffic.frame_sizes.iter().zip(&summary.sizes);
    for (size, of_size) in sizes {
        for case in &of_size.cases {
            let searches = case.goals.iter().map(|goal| goal.outcomes.len()).max();
            for search in 0..searches.unwrap_or(0) {
                let test = Test {
                    results,
                    case,
                    size: *size,
                    search,
                };
                tests.extend(test.document()?);
            }
        }
    }
    Ok(tests)
}

/// One search of a case at a frame size.
struct Test<'a> {
    results: &'a StudyResults,
    case: &'a CaseSummary,
    size: FrameSize,
    /// Number of the search, from 0.
    search: usize,
}

impl Test<'_> {
    fn document(&self) -> Result<Option<CsitTest>, ReportError> {
        let found: Vec<(&str, &GoalSummary)> = ["ndr", "pdr"]
            .into_iter()
            .filter_map(|name| Some((name, self.goal(name)?)))
            .collect();
        if found.is_empty() {
            return Ok(None);
        }
        let result = self.result(&found)?;
        let is_passed = result.is_some();
        let message = if is_passed {
            String::new()
        } else {
            self.message(&found)
        };
        let (tg_type, tg_version) = self.generator();
        let (start, end) = self.times();
        let name = self.name();
        let file = &self.results.file;
        let document = json!({
            "version": MODEL,
            "test_id": format!("quietwire.{}.{name}", file.name).to_lowercase(),
            "test_name_short": name,
            "test_name_long": format!("{}: {}, search {}", file.title, self.case.name, self.search.saturating_add(1)),
            "test_documentation": self.documentation(&found),
            "test_type": "ndrpdr",
            "tags": self.tags(),
            "dut_type": self.device(),
            "dut_version": self.version(),
            // Stores have no name of the machine, and the model requires one.
            "hosts": ["localhost"],
            "start_time": format::iso(start),
            "end_time": format::iso(end),
            "duration": end.saturating_sub(start) as f64 / 1e9,
            "passed": is_passed,
            "message": message,
            "telemetry": [],
            "tg_type": tg_type,
            "tg_version": tg_version,
            // The model's result of a test without rates.
            "result": result.unwrap_or_else(|| json!({ "type": "unknown" })),
        });
        Ok(Some(CsitTest {
            file_name: format!("{name}-{}.json", self.search.saturating_add(1)),
            document,
        }))
    }

    /// Returns the rates and the latency; none if a rate is missing, because the model requires both.
    fn result(&self, found: &[(&str, &GoalSummary)]) -> Result<Option<Value>, ReportError> {
        let mut result = Map::from_iter([("type".to_owned(), json!("ndrpdr"))]);
        for (name, goal) in found {
            let Some(bounds) = self.bounds(goal) else {
                return Ok(None);
            };
            result.insert((*name).to_owned(), bounds);
        }
        if found.len() < 2 {
            return Ok(None);
        }
        let latency = self.latency()?;
        if LOADS.iter().all(|load| latency.contains_key(*load)) {
            result.insert("latency_forward".to_owned(), Value::Object(latency));
        }
        Ok(Some(Value::Object(result)))
    }

    /// Returns the goal of this name. Without one, returns the goal without loss, or the one with the smallest allowed loss above 0.
    fn goal(&self, name: &str) -> Option<&GoalSummary> {
        let goals = || self.case.goals.iter();
        let is_meant = |goal: &&GoalSummary| (goal.loss_ratio == 0.0) == (name == "ndr");
        goals()
            .find(|goal| goal.name.eq_ignore_ascii_case(name))
            .or_else(|| {
                goals()
                    .filter(is_meant)
                    .min_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio))
            })
    }

    /// Returns the bounds of a rate; none if the search has none. Without a rate above it that lost too much, both are the same.
    fn bounds(&self, goal: &GoalSummary) -> Option<Value> {
        let lower = match *goal.outcomes.get(self.search)? {
            SearchOutcome::Held { rate_pps, .. } | SearchOutcome::AtLeast { rate_pps } => rate_pps,
            _ => return None,
        };
        let lost = self.trials().filter(|trial| {
            let result = &trial.result;
            result.loss_ratio > goal.loss_ratio && result.achieved_rate_pps > lower
        });
        let upper = lost.map(|trial| trial.result.achieved_rate_pps);
        let upper = upper.reduce(f64::min).unwrap_or(lower);
        Some(json!({ "lower": self.rate(lower), "upper": self.rate(upper) }))
    }

    fn rate(&self, rate_pps: f64) -> Value {
        let composition = self.size.0.composition();
        let frames: f64 = composition.values().copied().map(f64::from).sum();
        let octets = composition
            .iter()
            .map(|(size, frames)| f64::from(*size) * f64::from(*frames));
        let mean = octets.sum::<f64>() / frames.max(1.0);
        json!({
            "rate": { "value": rate_pps, "unit": "pps" },
            "bandwidth": { "value": rate_pps * (mean + AROUND_FRAME) * BITS, "unit": "bps" },
        })
    }

    /// Returns the steps of this case and frame size.
    fn steps(&self) -> impl Iterator<Item = &StepRecord> {
        let all = self.results.steps.iter();
        all.filter(|step| step.case_name == self.case.name && step.frame_size == self.size)
    }

    /// Returns the round of the search; none if a round has several searches.
    fn round(&self) -> Option<u32> {
        let goal = self.case.goals.first()?;
        let mut rounds: Vec<u32> = self
            .steps()
            .filter(|step| is_search(step))
            .map(|step| step.round)
            .collect();
        rounds.sort_unstable();
        rounds.dedup();
        (rounds.len() == goal.outcomes.len())
            .then(|| rounds.get(self.search).copied())
            .flatten()
    }

    /// Returns the valid trials of the search; none if a round has several searches.
    fn trials(&self) -> impl Iterator<Item = &TrialRecord> {
        let round = self.round();
        self.steps()
            .filter(move |step| Some(step.round) == round && is_search(step))
            .flat_map(|step| &step.trials)
            .filter(|trial| trial.result.is_valid())
    }

    /// Returns start and end of the search with its latency trials, nanoseconds since the Unix epoch. Those of all trials if a round has
    /// several searches.
    fn times(&self) -> (u64, u64) {
        let round = self.round();
        let steps = || {
            self.steps()
                .filter(move |step| round.is_none_or(|round| step.round == round))
        };
        let trials = || steps().flat_map(|step| &step.trials);
        let started = trials().map(|trial| trial.result.started_unix_ns).min();
        let start = started.unwrap_or(self.results.started_unix_ns);
        let end = trials().map(|trial| trial.stored_unix_ns).max();
        (start, end.unwrap_or(start))
    }

    /// Returns latency by CSIT's names of loads.
    fn latency(&self) -> Result<Map<String, Value>, ReportError> {
        let mut loads = Map::new();
        let Some(round) = self.round() else {
            return Ok(loads);
        };
        for step in self.steps().filter(|step| step.round == round) {
            if step.kind == StepKind::Latency {
                let trials: Vec<&TrialRecord> = step.trials.iter().collect();
                insert(&mut loads, "pdr_0", step, &trials)?;
            }
            let Some(Findings::LatencyPlan(plan)) = &step.findings else {
                continue;
            };
            for point in &plan.points {
                let rate_pps = point.point.rate_pps;
                let of_load = |trial: &&TrialRecord| trial.request.offered_rate_pps == rate_pps;
                let trials: Vec<&TrialRecord> = step.trials.iter().filter(of_load).collect();
                for load in &point.point.stands_for {
                    if let LatencyLoad::PartOfPdr { percent } = load {
                        insert(&mut loads, &format!("pdr_{percent}"), step, &trials)?;
                    }
                }
            }
        }
        Ok(loads)
    }

    fn file_case(&self) -> Option<&Case> {
        let mut cases = self.results.file.cases.iter();
        cases.find(|case| case.name == self.case.name)
    }

    /// Returns the name of the test: frame size, case and kind.
    fn name(&self) -> String {
        let unit = if self.size.0.composition().len() == 1 {
            "b"
        } else {
            ""
        };
        format!("{}{unit}-{}-ndrpdr", self.size, self.case.name)
    }

    fn device(&self) -> String {
        let device = self.file_case().map(|it| self.results.file.device_of(it));
        let name = device.map_or_else(|| "other".to_owned(), |it| it.switch.to_string());
        // CSIT's spelling.
        match name.as_str() {
            "vpp" => name.to_uppercase(),
            _ => name,
        }
    }

    /// Returns the version of quietwire, which is that of the device if the device is quietwire's switch.
    fn version(&self) -> String {
        let versions = self.results.runs.last().map(|run| &run.versions);
        text_or_unknown(versions.and_then(|it| it.get("quietwire")))
    }

    /// Returns name and version of the traffic generator.
    fn generator(&self) -> (String, String) {
        let versions = self.results.runs.last().map(|run| &run.versions);
        match versions.and_then(|it| it.get("generator")) {
            Some(other) => (
                text_or_unknown(other.get("name")),
                text_or_unknown(other.get("version")),
            ),
            None => ("quietwire".to_owned(), self.version()),
        }
    }

    /// Returns the description of the case, with the allowed loss of each goal.
    fn documentation(&self, found: &[(&str, &GoalSummary)]) -> String {
        let allowed = found
            .iter()
            .map(|(name, goal)| format!("{} {}", name.to_uppercase(), goal.loss_ratio));
        let allowed: Vec<String> = allowed.collect();
        format!(
            "{} (allowed loss ratio: {})",
            self.case.description,
            allowed.join(", ")
        )
    }

    /// Returns the tags of the test: its type, frame size and deployment.
    fn tags(&self) -> Vec<String> {
        let mut tags = vec!["NDRPDR".to_owned(), self.size.to_string().to_uppercase()];
        let deployment = self
            .file_case()
            .and_then(|case| deployment(&self.results.file, case));
        tags.extend(deployment.map(|name| name.to_uppercase()));
        tags
    }

    fn message(&self, found: &[(&str, &GoalSummary)]) -> String {
        let missing = ["ndr", "pdr"]
            .into_iter()
            .filter(|name| found.iter().all(|(known, _)| known != name))
            .map(|name| format!("{}: the study has no such goal", name.to_uppercase()));
        let lines = found.iter().map(|(name, goal)| {
            let rate = match goal.outcomes.get(self.search) {
                Some(SearchOutcome::Held { rate_pps, .. }) => format!("{rate_pps:.0} pps"),
                Some(SearchOutcome::AtLeast { rate_pps }) => format!("at least {rate_pps:.0} pps"),
                Some(SearchOutcome::NothingHeld { .. }) => "no rate held".to_owned(),
                Some(SearchOutcome::TesterFailed) => "the tester failed".to_owned(),
                Some(SearchOutcome::Unfinished) | None => "unfinished".to_owned(),
            };
            let name = name.to_uppercase();
            format!("{name}: {rate} (allowed loss ratio {})", goal.loss_ratio)
        });
        lines.chain(missing).collect::<Vec<_>>().join("\n")
    }
}

fn text_or_unknown(value: Option<&Value>) -> String {
    let text = value.and_then(Value::as_str).unwrap_or_default();
    let text = if text.is_empty() { UNKNOWN } else { text };
    text.to_owned()
}

/// Rounds nanoseconds to whole microseconds.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a time is at most a u64, and the cast saturates"
)]
fn whole_us(ns: f64) -> u64 {
    (ns / 1e3).round() as u64
}

fn is_search(step: &StepRecord) -> bool {
    matches!(step.kind, StepKind::Search(_) | StepKind::Goals)
}

/// Adds the latency of the valid ones of these trials, if frames arrived in them.
fn insert(
    loads: &mut Map<String, Value>,
    name: &str,
    step: &StepRecord,
    trials: &[&TrialRecord],
) -> Result<(), ReportError> {
    let valid = || trials.iter().filter(|trial| trial.result.is_valid());
    let Some(first) = valid().next() else {
        return Ok(());
    };
    let damaged = |reason: String| ReportError::Histogram {
        case: step.case_name.clone(),
        step: step.id,
        sequence: first.sequence,
        reason,
    };
    let latencies = valid().map(|trial| &trial.result.latency);
    let latency = LatencySummary::merged(latencies).map_err(damaged)?;
    if latency.samples == 0 {
        return Ok(());
    }
    let histogram = histogram_in_us(&latency.histogram_v2_base64).map_err(damaged)?;
    loads.insert(
        name.to_owned(),
        json!({
            "min": whole_us(latency.min_ns as f64),
            "avg": whole_us(latency.mean_ns),
            // The model's smallest maximum is 1.
            "max": whole_us(latency.max_ns as f64).max(1),
            "hdrh": histogram,
            "unit": "us",
        }),
    );
    Ok(())
}

/// Returns vsperf's name of a case's deployment: `p2p` for a switch alone, `pvp` and `pvvp` with one and two network functions in a chain.
/// None for other devices.
fn deployment(file: &StudyFile, case: &Case) -> Option<String> {
    let graph = file.device_of(case).graph().ok()?;
    let count = |role: Role| {
        let elements = graph.elements.iter();
        elements.filter(|element| element.role == role).count()
    };
    let role_at = |element: usize| graph.elements.get(element).map(|element| element.role);
    let is_at_tester = |role: Role| {
        let ends = graph.links.iter().map(|link| link.ends);
        let mut roles = ends.map(|ends| ends.map(|end| role_at(end.element)));
        roles.any(|ends| ends.contains(&Some(Role::Tester)) && ends.contains(&Some(role)))
    };
    let is_switched = is_at_tester(Role::Switch) && !is_at_tester(Role::Vnf);
    let is_one_chain = graph.chains.len() == 1;
    (is_one_chain && is_switched).then(|| match count(Role::Vnf) {
        0 => "p2p".to_owned(),
        functions => format!("p{}p", "v".repeat(functions)),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn deployments_have_the_names_of_vsperf() {
        let named = |topology: &str| {
            let text = format!(
                "name = \"s\"\ntitle = \"T\"\n[device]\nswitch = \"ovs-dpdk\"\n{topology}\n[tester]\ncpu = \"0\"\n\
                 [trials]\nduration-s = 1\nmax-rate-pps = 9_000_000\n[search]\nstart-rate-percent = 20\n\
                 start-step-percent = 20\nresolution-percent = 5\ngoal = [{{ name = \"NDR\", loss-ratio = 0.0 }}]\n\
                 [[case]]\nname = \"c\"\nneighbours = \"none\"\nisolation = \"pinned\"\n"
            );
            let file = StudyFile::parse(&text, Path::new("study.toml")).unwrap();
            deployment(&file, &file.cases[0])
        };
        for (topology, name) in [
            ("vNet1", Some("p2p")),
            ("vNet4-1VNF", Some("pvp")),
            ("vNet6-1VNFch\"\nlength = 2\nplace = \"host", Some("pvvp")),
            ("vNet3", None),
            ("vComp2-VM2VM", None),
        ] {
            let name = name.map(str::to_owned);
            assert_eq!(
                named(&format!("topology = \"{topology}\"")),
                name,
                "{topology}"
            );
        }
    }
}
