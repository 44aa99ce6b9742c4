// SPDX-License-Identifier: Apache-2.0
mod external;
mod functions;
mod guide;
mod isolation;
mod objectives;

use proptest::prelude::*;

use super::*;
use crate::methods::{Estimate, Sweep};
use crate::tests::SMALL;

fn parse(text: &str) -> Result<StudyFile, FileError> {
    StudyFile::parse(text, Path::new("a/study.toml"))
}

/// Returns the error for the small study with one text replaced, and the first line that differs.
fn error(old: &str, new: &str) -> (String, usize) {
    assert_eq!(
        SMALL.matches(old).count(),
        1,
        "'{old}' has to be there once"
    );
    let text = SMALL.replace(old, new);
    let same = text.chars().zip(SMALL.chars()).take_while(|(a, b)| a == b);
    let line = same.filter(|(a, _)| *a == '\n').count() + 1;
    (parse(&text).unwrap_err().to_string(), line)
}

#[track_caller]
fn refused(old: &str, new: &str, key: &str, says: &str) {
    let (message, line) = error(old, new);
    let place = format!("a/study.toml:{line}:");
    assert!(message.starts_with(&place), "{message}\nis not at {place}");
    assert!(
        message.contains(&format!(": {key}: ")),
        "{message}\ndoes not name {key}"
    );
    assert!(message.contains(says), "{message}\ndoes not say {says}");
}

#[test]
fn the_ready_made_study_is_read_and_takes_at_most_fifteen_minutes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let (file, text) = StudyFile::read(&root.join("noisy-neighbours.toml")).unwrap();
    assert_eq!(parse(&text).unwrap(), file);
    let names: Vec<_> = file.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(
        names,
        ["quiet", "noisy", "quiet-partitioned", "noisy-partitioned"]
    );
    let estimate = Estimate::of(&file);
    assert!(estimate.duration_s <= 900.0, "{estimate:?}");
}

#[test]
fn every_ready_made_study_is_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let mut count = 0;
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            StudyFile::read(&path).unwrap();
            count += 1;
        }
    }
    assert!(count > 0);
}

#[test]
fn a_key_that_is_not_known_is_reported_with_line_and_key() {
    refused("rounds = 2", "runds = 2", "runds", "expected one of");
    refused(
        "rate-percent = 1\n",
        "rate-perzent = 1\n",
        "latency.rate-perzent",
        "unknown field",
    );
    refused(
        r#"{ name = "PDR", loss-ratio = 0.005 }"#,
        r#"{ name = "PDR", lossratio = 0.005 }"#,
        "search.goal[1].lossratio",
        "loss-ratio",
    );
}

#[test]
fn a_value_of_the_wrong_kind_is_reported_with_line_and_key() {
    refused("rounds = 2", "rounds = \"two\"", "rounds", "u32");
    refused(
        "loads-percent = [10, 50, 100]",
        "loads-percent = [10, 500, 100]",
        "sweep.loads-percent",
        "500 is not a percentage",
    );
    refused(
        "link = \"memif\"",
        "link = \"string\"",
        "device.link",
        "memif",
    );
    // A rate too high for a schedule.
    refused(
        "rate-percent = 1\n",
        "rate-pps = 1e300\n",
        "latency.rate-pps",
        "at most 1e10",
    );
    refused(
        "cpu = \"0\"",
        "cpu = \"zero\"",
        "tester.cpu",
        "not a CPU number",
    );
}

#[test]
fn a_file_that_is_no_toml_is_reported_with_its_line() {
    let (message, line) = error("rounds = 2", "rounds = = 2");
    assert!(
        message.starts_with(&format!("a/study.toml:{line}:")),
        "{message}"
    );
}

#[test]
fn a_missing_section_and_a_missing_file_are_reported() {
    let message = parse("name = \"x\"\ntitle = \"y\"\n")
        .unwrap_err()
        .to_string();
    assert!(message.contains("missing field `device`"), "{message}");
    let message = StudyFile::read(Path::new("/no/such.toml"))
        .unwrap_err()
        .to_string();
    assert!(message.contains("/no/such.toml"), "{message}");
}

#[test]
fn roles_share_no_forwarding_cpu() {
    refused(
        "cpu = \"0\"\n[device]",
        "cpu = \"1\"\n[device]",
        "tester.cpu",
        "also one of the forwarding-cpus",
    );
    refused(
        "service-cpus = \"0\"",
        "service-cpus = \"0-1\"",
        "device.service-cpus",
        "CPU 1 is also one of the forwarding-cpus",
    );
    refused(
        "control-cpus = \"0\"",
        "control-cpus = \"0x2\"",
        "device.control-cpus",
        "also one of the forwarding-cpus",
    );
    refused(
        "forwarding-cpus = \"1\"",
        "forwarding-cpus = \"\"",
        "device.forwarding-cpus",
        "no CPU",
    );
    refused(
        "cpu = \"0\"\n[device]",
        "cpu = \"0,2\"\n[device]",
        "tester.cpu",
        "a single CPU",
    );
}

#[test]
fn values_out_of_range_are_reported() {
    refused(
        "title = \"A small study\"\nrounds = 2",
        "title = \"A small study\"\nrounds = 0",
        "rounds",
        "must be 1",
    );
}

#[test]
fn numbers_out_of_range_are_reported() {
    refused(
        "duration-s = 1\ninvalid-repeats = 2",
        "duration-s = 0\ninvalid-repeats = 2",
        "trials.duration-s",
        "above 0",
    );
    refused(
        "invalid-repeats = 2",
        "invalid-repeats = 2\nwarm-up-s = -1.0",
        "trials.warm-up-s",
        "0 to",
    );
}

#[test]
fn goals_loads_and_cases_are_distinguished() {
    refused(
        "loss-ratio = 0.005",
        "loss-ratio = 1.0",
        "search.goal[1].loss-ratio",
        "[0, 1)",
    );
    refused(
        "name = \"PDR\"",
        "name = \"NDR\"",
        "search.goal[1].name",
        "two goals",
    );
    refused(
        "name = \"noisy\"",
        "name = \"quiet\"",
        "case[1].name",
        "two cases",
    );
    refused(
        "name = \"noisy\"",
        "name = \"no isy\"",
        "case[1].name",
        "not a valid name",
    );
    refused(
        "[10, 50, 100]",
        "[10, 50, 10]",
        "sweep.loads-percent[2]",
        "twice",
    );
    refused(
        "resolution-percent = 5",
        "resolution-percent = 25",
        "search.resolution-percent",
        "smaller",
    );
    refused(
        "resolution-percent = 5",
        "resolution-percent = 5\nbest-of = 0",
        "search.best-of",
        "1 to 100",
    );
    refused(
        "start-rate-percent = 20",
        "start-rate-percent = 2",
        "search.start-rate-percent",
        "start higher",
    );
    refused(
        "stressors = [\"--cpu 4\"]",
        "stressors = [\"rm -rf\"]",
        "neighbours.stressors[0]",
        "--cpu 4",
    );
    refused(
        "stressors = [\"--cpu 4\"]",
        "kinds = [\"cpu\", \"cache-l4\"]",
        "neighbours.kinds[1]",
        "cache-l3",
    );
    refused(
        "stressors = [\"--cpu 4\"]",
        "count = 0\nkinds = [\"cpu\"]",
        "neighbours.count",
        "1",
    );
    let (message, _) = error("rate-percent = 1\n", "rate-percent = 1\nrate-pps = 5\n");
    assert!(message.contains(": latency: set exactly one"), "{message}");
}

#[test]
fn a_method_takes_its_own_keys_only_and_needs_some() {
    refused(
        "resolution-percent = 5",
        "resolution-percent = 5\nmethod = \"twice\"",
        "search.method",
        "best-of-n",
    );
    refused(
        "resolution-percent = 5",
        "resolution-percent = 5\ntrials-per-rate = 3",
        "search.trials-per-rate",
        "single-run does not support this key",
    );
    refused(
        "resolution-percent = 5",
        "resolution-percent = 5\nmin-rate-percent = 3",
        "search.min-rate-percent",
        "single-run does not support this key",
    );
    refused(
        "name = \"PDR\",",
        "name = \"PDR\", exceed-ratio = 0.5,",
        "search.goal[1].exceed-ratio",
        "single-run does not support this key",
    );
    let (message, _) = error("resolution-percent = 5\n", "");
    assert!(
        message.contains(": search: resolution-percent is missing (single-run requires it)"),
        "{message}"
    );
    let of_n = "method = \"best-of-n\"\nstart-step-percent = 20\nbest-of = 2";
    let (message, _) = error("start-step-percent = 20", of_n);
    assert!(
        message.contains("search.best-of: best-of-n does not support this key"),
        "{message}"
    );
    let of_n = "method = \"worst-of-n\"\nstart-step-percent = 20\ntrials-per-rate = 101";
    let (message, _) = error("start-step-percent = 20", of_n);
    assert!(message.contains("search.trials-per-rate: 101"), "{message}");
}

/// Returns the small study with an MLRsearch whose second goal has these additional keys.
fn with_mlr(more: &str) -> String {
    let steps = "start-rate-percent = 20\nstart-step-percent = 20\nresolution-percent = 5";
    assert!(SMALL.contains(steps));
    SMALL
        .replace(steps, "method = \"mlrsearch\"")
        .replace("name = \"PDR\",", &format!("name = \"PDR\",{more}"))
}

#[test]
fn goals_of_an_mlrsearch_have_attributes() {
    let file = parse(&with_mlr("")).unwrap();
    let goals = &file.search.as_ref().unwrap().goals;
    let goal = goals[1].mlr(&file.trials).unwrap();
    assert_eq!(
        (goal.final_trial_duration_s, goal.duration_sum_s),
        (1.0, 21.0)
    );
    assert_eq!((goal.exceed_ratio, goal.width), (0.5, 0.005));
    assert!(Estimate::of(&file).duration_s > 2.0 * 21.0);
    let all = "exceed-ratio = 0.0, width-percent = 1, final-trial-duration-s = 60, initial-trial-duration-s = 2, duration-sum-s = 120,";
    let file = parse(&with_mlr(all)).unwrap();
    let goal = file.search.as_ref().unwrap().goals[1]
        .mlr(&file.trials)
        .unwrap();
    assert_eq!(
        (goal.final_trial_duration_s, goal.duration_sum_s),
        (60.0, 120.0)
    );
    assert_eq!((goal.exceed_ratio, goal.width), (0.0, 0.01));
    assert_eq!(goal.initial_trial_duration_s, 2.0);
    assert_eq!(parse(&toml::to_string(&file).unwrap()).unwrap(), file);
}

#[test]
fn invalid_goals_of_an_mlrsearch_are_reported() {
    let line = SMALL
        .lines()
        .take_while(|line| !line.starts_with("goal"))
        .count()
        - 1;
    for (more, key) in [
        ("exceed-ratio = 1.0,", "exceed-ratio"),
        ("width-percent = 100,", "width-percent"),
        ("final-trial-duration-s = 0,", "final-trial-duration-s"),
        (
            "initial-trial-duration-s = 3601,",
            "initial-trial-duration-s",
        ),
        ("initial-trial-duration-s = 2,", "initial-trial-duration-s"),
        ("duration-sum-s = -1,", "duration-sum-s"),
    ] {
        let message = parse(&with_mlr(more)).unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("a/study.toml:{line}:")),
            "{message}"
        );
        assert!(
            message.contains(&format!(": search.goal[1].{key}: ")),
            "{message}"
        );
    }
    let steps = with_mlr("").replace("method = ", "start-rate-percent = 20\nmethod = ");
    let message = parse(&steps).unwrap_err().to_string();
    assert!(
        message.contains("mlrsearch does not support this key"),
        "{message}"
    );
}

#[test]
fn wrong_keys_of_further_methods_are_reported_with_line_and_key() {
    let reported = |text: &str, key: &str, says: &str| {
        let whole = SMALL.replace("[neighbours]", &format!("{text}\n[neighbours]"));
        let message = parse(&whole).unwrap_err().to_string();
        assert!(message.contains(&format!(": {key}: ")), "{message}");
        assert!(message.contains(says), "{message}");
        let line = whole[..whole.find(text).unwrap()].matches('\n').count() + 1;
        let found: usize = message.split(':').nth(1).unwrap().parse().unwrap();
        let lines = line..=line + text.matches('\n').count();
        assert!(lines.contains(&found), "{message}\nis not in {lines:?}");
    };
    let distribution = "[loss-distribution]\ntrials = 5\n";
    for (more, key, says) in [
        ("", "", "exactly one of"),
        ("loads-percent = []", ".loads-percent", "no load"),
        ("loads-percent = [5, 5]", ".loads-percent[1]", "given twice"),
        ("loads-percent = [5]\nrates = 3", ".rates", "remove it"),
        ("between = \"XDR\"", ".between", "unknown goal 'XDR'"),
        ("between = \"NDR\"", ".between", "best-and-worst-of-n"),
        ("between = \"NDR\"\nrates = 0", ".rates", "1 to 1000"),
        (
            "loads-percent = [5]\nduration-s = 0",
            ".duration-s",
            "above 0",
        ),
    ] {
        let key = format!("loss-distribution{key}");
        reported(&format!("{distribution}{more}"), &key, says);
    }
    reported(
        "[loss-distribution]\nloads-percent = [5]\ntrials = 0",
        "loss-distribution.trials",
        "1 to 10000",
    );
    for (more, key, says) in [
        ("duration-s = 0", ".duration-s", "above 0"),
        (
            "duration-s = 5\nloss-ratio = 0",
            ".loss-ratio",
            "above 0 and below 1",
        ),
        (
            "duration-s = 5\nloss-ratio = 1.0",
            ".loss-ratio",
            "above 0 and below 1",
        ),
        (
            "duration-s = 5\ntrial-growth-s = 0",
            ".trial-growth-s",
            "above 0",
        ),
        (
            "duration-s = 5\nfirst-trial-duration-s = -1",
            ".first-trial-duration-s",
            "above 0",
        ),
        (
            "duration-s = 5\nmin-rate-percent = 101",
            ".min-rate-percent",
            "101",
        ),
    ] {
        reported(&format!("[soak]\n{more}"), &format!("soak{key}"), says);
    }
    for (more, key, says) in [
        (
            "lower-loads-percent = [50, 100]",
            ".lower-loads-percent[1]",
            "below 100",
        ),
        (
            "lower-loads-percent = [50, 50]",
            ".lower-loads-percent[1]",
            "given twice",
        ),
        ("duration-s = 0", ".duration-s", "above 0"),
    ] {
        let key = format!("forwarding-rate{key}");
        reported(&format!("[forwarding-rate]\n{more}"), &key, says);
    }
    for (more, key, says) in [
        ("ndr = \"XDR\"", ".ndr", "unknown goal"),
        ("pdr = \"XDR\"", ".pdr", "unknown goal"),
        ("duration-s = 0", ".duration-s", "above 0"),
        ("start-rate = 5", ".start-rate", "unknown field"),
    ] {
        let key = format!("latency-plan{key}");
        reported(&format!("[latency-plan]\n{more}"), &key, says);
    }
    refused(
        "resolution-percent = 5",
        "resolution-percent = 5\nrepeats = 1",
        "search.repeats",
        "2 to 10000",
    );
    refused(
        "resolution-percent = 5",
        "resolution-percent = 5\nconfidence-percent = 95",
        "search.confidence-percent",
        "repeats = 10",
    );
}

#[test]
fn neighbours_that_are_not_described_are_reported() {
    let text = SMALL.replace("[neighbours]\nstressors = [\"--cpu 4\"]\n", "");
    let message = parse(&text).unwrap_err().to_string();
    assert!(message.contains("case[1].neighbours: "), "{message}");
}

#[test]
fn nothing_to_measure_and_no_case_are_reported() {
    let cut = |from: &str, to: &str| {
        let (start, end) = (SMALL.find(from).unwrap(), SMALL.find(to).unwrap());
        format!("{}{}", &SMALL[..start], &SMALL[end..])
    };
    let message = parse(&cut("[search]", "[neighbours]"))
        .unwrap_err()
        .to_string();
    assert!(message.contains("measures nothing"), "{message}");
    let at = SMALL.find("[[case]]").unwrap();
    for text in [
        SMALL[..at].to_owned(),
        format!("case = []\n{}", &SMALL[..at]),
    ] {
        let message = parse(&text).unwrap_err().to_string();
        assert!(message.contains("no case is given"), "{message}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        drop(parse(&text));
    }

    #[test]
    fn no_change_of_one_character_makes_the_reader_panic(at in 0..SMALL.len(), with in proptest::char::any()) {
        let text = format!("{}{with}{}", &SMALL[..at], &SMALL[at + 1..]);
        if let Err(FileError::Wrong { line, .. }) = parse(&text) {
            prop_assert!(line >= 1 && line <= text.matches('\n').count() + 2);
        }
    }

    #[test]
    fn frame_sizes_are_those_of_the_rfc(size in 0u32..20_000) {
        let text = SMALL.replace("[tester]", &format!("[traffic]\nframe-sizes = [{size}]\n[tester]"));
        let is_good = (64..=9000).contains(&size);
        prop_assert_eq!(parse(&text).is_ok(), is_good);
    }

    #[test]
    fn loss_ratios_are_in_range(ratio in -2.0f64..2.0) {
        let text = SMALL.replace("loss-ratio = 0.005", &format!("loss-ratio = {ratio:?}"));
        prop_assert_eq!(parse(&text).is_ok(), (0.0..1.0).contains(&ratio));
    }

    #[test]
    fn a_file_that_is_read_can_be_written_and_read_again(rounds in 1u32..99, rate in 1.0f64..1e9, load in 0.1f64..100.0) {
        let mut file = parse(SMALL).unwrap();
        file.rounds = rounds;
        file.trials.max_rate_pps = MaxRate::Pps(rate);
        file.sweep = Some(Sweep { loads_percent: vec![Percent(load)] });
        prop_assert_eq!(parse(&toml::to_string(&file).unwrap()).unwrap(), file);
    }
}

#[test]
fn frames_may_be_described_and_faults_in_it_are_named() {
    let with = |traffic: &str| parse(&format!("{SMALL}\n{traffic}"));
    let without = SMALL.replace("[traffic]", "");
    assert_eq!(without, SMALL, "the small study says nothing of traffic");
    let file = with(
        "[traffic]\nframe-sizes = [84, \"imix\"]\n[traffic.frames.ipv4]\n\
         source = { first = \"10.0.0.1\", count = 500 }\n",
    )
    .unwrap();
    assert_eq!(file.traffic.frames.unwrap().flow_count(), 500);
    for (traffic, key, says) in [
        (
            "[traffic.frames]\ncolour = 1\n",
            "traffic.frames.colour",
            "unknown field",
        ),
        (
            "[traffic.frames]\nsizes = 64\n",
            "traffic.frames.sizes",
            "frame-sizes",
        ),
        (
            "[traffic.frames.udp]\n[traffic.frames.tcp]\n",
            "traffic.frames.tcp",
            "UDP and TCP",
        ),
        (
            "[traffic]\nflows = 5\n[traffic.frames]\nseed = 1\n",
            "traffic.frames",
            "cannot be combined with it",
        ),
        (
            "[traffic.frames.ipv6]\n",
            "traffic.frame-sizes[0]",
            "require 84 octets",
        ),
        (
            "[traffic.frames]\nburst = { frames = 4, gap-us = 5.0 }\n",
            "traffic.frames.burst",
            "gap-us",
        ),
        (
            "[traffic.frames]\nreplay = { file = \"x\" }\n",
            "traffic.frames.replay",
            "capture",
        ),
    ] {
        let message = with(traffic).unwrap_err().to_string();
        assert!(
            message.contains(key) && message.contains(says),
            "{traffic}: {message}"
        );
        assert!(message.starts_with("a/study.toml:"), "{message}");
    }
}

/// Parses the small study with a topology as its device; `device` are its keys, `cases` all cases.
fn of_topologies(device: &str, cases: &str) -> Result<StudyFile, FileError> {
    let (head, _) = SMALL.split_once("[[case]]").unwrap();
    let alone = [
        "switch = \"quietwire\"\n",
        "topology = \"vNet1\"\n",
        "link = \"memif\"\n",
    ];
    let head = alone
        .iter()
        .fold(head.to_owned(), |text, key| text.replace(key, ""));
    let head = head.replace("[device]\n", &format!("[device]\n{device}\n"));
    parse(&format!("{head}{cases}"))
}

const VNET1: &str = "switch = \"quietwire\"\ntopology = \"vNet1\"";
const TWO: &str =
    "[[case]]\nname = \"own\"\n[[case]]\nname = \"bridge\"\nswitch = \"linux-bridge\"\n";

#[test]
fn cases_have_devices_of_their_own() {
    let file = of_topologies(VNET1, TWO).unwrap();
    assert!(file.runs_in_topologies());
    let described = |case: usize| file.device_of(&file.cases[case]).described();
    assert_eq!(described(0), "quietwire in vNet1 over memif");
    assert_eq!(described(1), "linux-bridge in vNet1 over veth");
    // Each has its own 100 % of the load; cases with the same device and traffic share theirs.
    let scale = |file: &StudyFile, case: usize| {
        let scale = file.scale_of(&file.cases[case]);
        scale.map(|case| case.name.clone())
    };
    assert_eq!(scale(&file, 1).as_deref(), Some("bridge"));
    let more = format!("{TWO}[[case]]\nname = \"again\"\nneighbours = \"everywhere\"\n");
    let file = of_topologies(VNET1, &more).unwrap();
    assert_eq!(scale(&file, 2).as_deref(), Some("own"));
    let sizes = "[[case]]\nname = \"one\"\n[[case]]\nname = \"many\"\nmac-addresses = 2000\nlink = \"vhost-user\"\n";
    let file = of_topologies(VNET1, sizes).unwrap();
    assert_eq!(file.traffic_of(&file.cases[1]).mac_addresses, 2000);
    // The standalone quietwire switch has the same description with any traffic.
    assert!(!parse(SMALL).unwrap().runs_in_topologies());
    assert_eq!(scale(&parse(SMALL).unwrap(), 1), None);
}

#[test]
fn a_device_may_be_any_topology_with_guests_and_chains() {
    let device = "switch = \"ovs-dpdk\"\ntopology = \"vnet6-nvnfch\"\nvnf = \"testpmd-io\"\nchains = 2\nlength = 3\n\
                  encapsulation = \"vxlan\"\naccelerator = \"software\"\ncpus = { S = \"1\" }";
    let file = of_topologies(device, "[[case]]\nname = \"only\"\n").unwrap();
    let device = file.device_of(&file.cases[0]);
    assert_eq!(
        device.described(),
        "ovs-dpdk in vNet6-nVNFch over vhost-user, 6 network functions testpmd-io in guests"
    );
    let graph = device.graph().unwrap();
    assert_eq!((graph.guest_count(), graph.chains.len()), (6, 2));
    let trial = crate::run::frames(&file, &file.cases[0], FrameSize::default());
    let text = "[traffic.vxlan]\nvni = 42\n[traffic.inner.ipv4]\n";
    let described = quietwire_tester::traffic::Traffic::parse(text, Path::new("overlay")).unwrap();
    assert_eq!(trial.traffic.as_deref(), Some(&described));
    // Writing and reading it again does not change it.
    let text = toml::to_string(&file).unwrap();
    assert_eq!(parse(&text).unwrap(), file);
}

#[test]
fn invalid_topologies_are_reported() {
    let wrong = |device: &str, cases: &str, says: &[&str]| {
        let error = of_topologies(device, cases).unwrap_err().to_string();
        assert!(says.iter().all(|words| error.contains(words)), "{error}");
    };
    let one = "[[case]]\nname = \"only\"\n";
    wrong(
        &VNET1.replace("quietwire", "hub"),
        one,
        &["device.switch", "unknown switch 'hub'", "ovs-dpdk"],
    );
    wrong(
        &VNET1.replace("vNet1", "vNet9"),
        one,
        &["device.topology", "unknown topology 'vNet9'", "vNet4-1VNF"],
    );
    wrong(&format!("{VNET1}\nchains = 2"), one, &["device", "chains"]);
    wrong(
        VNET1,
        "[[case]]\nname = \"a\"\nswitch = \"linux-bridge\"\nlink = \"memif\"\n",
        &["case[0]", "memif"],
    );
    wrong(
        VNET1,
        "[[case]]\nname = \"a\"\nswitch = \"l3fwd\"\n",
        &["case[0]", "encapsulation"],
    );
    wrong(
        VNET1,
        "[[case]]\nname = \"a\"\nswitch = \"tester\"\n",
        &["case[0]", "tester"],
    );
    for key in ["pinning = \"roles\"", "partition = true"] {
        wrong(
            VNET1,
            &format!("{TWO}{key}\n"),
            &["case[1]", "is now 'isolation'"],
        );
    }
    wrong(
        &format!("{VNET1}\nmax-entries = 9"),
        TWO,
        &["device.max-entries", "alone"],
    );
    wrong(
        VNET1,
        &format!("{TWO}mac-addresses = 0\n"),
        &["case[1].mac-addresses"],
    );
    wrong(
        VNET1,
        &format!("{TWO}kinds = [\"cpu\"]\n"),
        &["case[1].kinds", "no neighbours"],
    );
    wrong(
        VNET1,
        &format!("{TWO}neighbours = \"everywhere\"\nkinds = [\"loud\"]\n"),
        &["case[1].kinds[0]", "unknown kind 'loud'"],
    );
    let application = "[application]\ntcp-s = 1\necho-s = 1\n";
    wrong(VNET1, &format!("{application}{TWO}"), &["case[0]", "veth"]);
    let veth = format!("{VNET1}\nlink = \"veth\"");
    of_topologies(&veth, &format!("{application}{TWO}")).unwrap();
    wrong(
        &veth,
        &format!("{}{TWO}", application.replace("tcp-s = 1", "tcp-s = 0")),
        &["application.tcp-s"],
    );
}

#[test]
fn published_figures_have_ratios_cases_and_places() {
    let of = |title: &str, figure: &str| {
        let published = format!(
            "[published]\n{title}\nsource = \"s\"\ndiffers = \"d\"\n[[published.figure]]\nconfiguration = \"c\"\n{figure}\n[[case]]\nname = \"quiet\""
        );
        parse(&SMALL.replacen("[[case]]\nname = \"quiet\"", &published, 1))
    };
    let (title, quantity, place) = ("title = \"t\"", "quantity = \"q\"", "place = \"p\"");
    let with = |figure: &str| of(title, &format!("{quantity}\n{place}\n{figure}"));
    let whole = format!("{quantity}\n{place}\ncase = \"noisy\"\nthroughput = 0.6");
    for (title, figure, says) in [
        ("", whole.clone(), "published: title is missing"),
        (
            "title = \" \"",
            whole.clone(),
            "published: title is missing",
        ),
        (
            title,
            whole.replace(quantity, ""),
            "published.figure[0]: quantity is missing",
        ),
        (
            title,
            whole.replace(place, ""),
            "published.figure[0]: place is missing",
        ),
    ] {
        let error = of(title, &figure).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let file = with("case = \"noisy\"\nthroughput = 0.6\nround-trip = [1.5, 1.6]").unwrap();
    let figure = &file.published.unwrap().figures[0];
    assert_eq!(figure.round_trip.unwrap().bounds(), [1.5, 1.6]);
    for (figure, says) in [
        ("case = \"noisy\"", "no ratio"),
        ("throughput = 0.6", "the figure has no case"),
        ("case = \"noisy\"\nthroughput = 0", "above 0"),
        ("case = \"noisy\"\nthroughput = [2, 1]", "above 0"),
        (
            "case = \"noisy\"\notherwise = \"x\"\nthroughput = 1",
            "remove this key",
        ),
        ("case = \"none\"\nthroughput = 1", "unknown case 'none'"),
        (
            "case = \"noisy\"\nagainst = \"none\"\nthroughput = 1",
            "unknown case 'none'",
        ),
    ] {
        let error = with(figure).unwrap_err().to_string();
        assert!(
            error.contains("published.figure[0]") && error.contains(says),
            "{error}"
        );
    }
}

#[test]
fn the_tester_polls_unless_it_is_to_sleep_between_bursts() {
    use quietwire_tester::TesterIdle;
    assert_eq!(parse(SMALL).unwrap().tester.idle, TesterIdle::Poll);
    let with = |idle: &str| SMALL.replace("[tester]\n", &format!("[tester]\nidle = \"{idle}\"\n"));
    let sleeping = parse(&with("sleep")).unwrap();
    assert_eq!(sleeping.tester.idle, TesterIdle::Sleep);
    // The shortened study is written and read again.
    let quick = parse(&sleeping.quick().unwrap()).unwrap();
    assert_eq!(quick.tester.idle, TesterIdle::Sleep);
    let error = parse(&with("nap")).unwrap_err().to_string();
    assert!(error.contains("nap") && error.contains("sleep"), "{error}");
}

#[test]
fn a_case_has_all_monitors_or_none() {
    let with = |value: &str| {
        let line = format!("neighbours = \"none\"\nmonitors = \"{value}\"\n");
        parse(&SMALL.replacen("neighbours = \"none\"\n", &line, 1))
    };
    let [all, none] = [with("all").unwrap(), with("none").unwrap()];
    assert!(all.cases.iter().all(|case| case.monitors.is_all()));
    let without = none.cases.iter().filter(|case| !case.monitors.is_all());
    assert_eq!(without.count(), 1);
    // The shortened study is written and read again.
    let quick = parse(&none.quick().unwrap()).unwrap();
    assert_eq!(quick.cases, none.cases);
    let error = with("some").unwrap_err().to_string();
    assert!(error.contains("some") && error.contains("none"), "{error}");
}
