// SPDX-License-Identifier: Apache-2.0
//! Tests that compare the user guide with the command line: every option in the guide exists, and the guide names every
//! option.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory, Parser};

use quietwire_host::CpuId;
use quietwire_host::partition::{Group, NicPlan, PartitionRequest, Plan, QueueCpu, Role};
use quietwire_host::render::Target;
use quietwire_study::StudyFile;
use quietwire_switch::config::Settings;
use quietwire_tester::connections::Connections;
use quietwire_tester::traffic::Traffic;

use super::Cli;
use super::commands::manual;

/// Commands and the pages that document their options.
const PAGES: [(&str, &str); 35] = [
    ("application", "docs/applications.md"),
    ("generate", "docs/tester.md"),
    ("tester calibrate", "docs/tester.md"),
    ("tester self-test", "docs/tester.md"),
    ("tester self-test-device", "docs/tester.md"),
    ("measure", "docs/tester.md"),
    ("doctor", "docs/lab.md"),
    ("switch add interface", "docs/router.md"),
    ("switch set interface", "docs/router.md"),
    ("switch add route", "docs/router.md"),
    ("switch add routes", "docs/router.md"),
    ("switch add kernel-filter", "docs/kernel-path.md"),
    ("switch steer", "docs/split-path.md"),
    ("switch add backend", "docs/load-balancing.md"),
    ("switch add load-balancer", "docs/load-balancing.md"),
    ("switch set backend", "docs/load-balancing.md"),
    ("switch add nat", "docs/nat.md"),
    ("switch add nat-address", "docs/nat.md"),
    ("switch add publish", "docs/nat.md"),
    ("switch del publish", "docs/nat.md"),
    ("switch mappings", "docs/nat.md"),
    ("switch", "docs/switch.md"),
    ("study list", "docs/studies.md"),
    ("study run", "docs/studies.md"),
    ("study report", "docs/studies.md"),
    ("compare", "docs/compare.md"),
    ("trend", "docs/compare.md"),
    ("serve", "docs/serve.md"),
    ("lab", "docs/lab.md"),
    ("guest-agent", "docs/guests.md"),
    ("host", "docs/host.md"),
    ("partition", "docs/partition.md"),
    ("cluster", "docs/kubernetes.md"),
    ("manual", "docs/README.md"),
    ("completions", "docs/install.md"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns names and texts of README.md and the pages of the user guide.
fn pages() -> Vec<(String, String)> {
    let mut paths = vec![root().join("README.md")];
    let listed = fs::read_dir(root().join("docs")).unwrap();
    paths.extend(listed.map(|entry| entry.unwrap().path()));
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    let named = paths.into_iter().map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    });
    named.collect()
}

#[test]
fn the_index_names_every_page_and_the_readme_is_short() {
    const README_LINES: usize = 100;
    let index = fs::read_to_string(root().join("docs/README.md")).unwrap();
    let pages = pages();
    let names = pages.iter().map(|(name, _)| name);
    for name in names.filter(|name| *name != "README.md") {
        assert!(
            index.contains(&format!("]({name})")),
            "docs/README.md does not name {name}"
        );
    }
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let lines = readme.lines().count();
    assert!(lines < README_LINES, "README.md has {lines} lines");
}

/// Returns the code of a page: lines of fenced and indented blocks, with continued lines joined, and text in backquotes.
fn code(page: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut is_fenced = false;
    for line in page.replace("\\\n", " ").lines() {
        if line.starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced || line.starts_with("    ") {
            pieces.push(line.trim().to_owned());
        } else {
            pieces.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    pieces
}

/// Returns the options in a piece of code.
fn options(piece: &str) -> BTreeSet<String> {
    let words = piece.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let options = words.filter_map(|word| word.strip_prefix("--"));
    options
        .filter(|option| !option.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Options that every command has.
const OF_ALL: [&str; 2] = ["help", "version"];

/// Returns the visible options of one command without those that every command has.
fn options_of(command: &Command) -> BTreeSet<String> {
    let arguments = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set());
    let longs = arguments.filter_map(|argument| argument.get_long());
    longs
        .filter(|long| !OF_ALL.contains(long))
        .map(str::to_owned)
        .collect()
}

fn add_leaf_commands(command: &Command, name: &str, into: &mut Vec<(String, BTreeSet<String>)>) {
    if !command.has_subcommands() {
        into.push((name.trim().to_owned(), options_of(command)));
    }
    for inner in command.get_subcommands() {
        add_leaf_commands(inner, &format!("{name} {}", inner.get_name()), into);
    }
}

/// Returns the commands without subcommands, by the words after `quietwire`, with their options.
fn commands() -> Vec<(String, BTreeSet<String>)> {
    let mut found = Vec::new();
    add_leaf_commands(&Cli::command(), "", &mut found);
    found
}

#[test]
fn every_option_that_the_guide_names_is_there() {
    let commands = commands();
    let any: BTreeSet<String> = commands
        .iter()
        .flat_map(|(_, options)| options.clone())
        .collect();
    let mut checked = 0;
    for (page, text) in pages() {
        for piece in code(&text) {
            // Code that starts with an option must use options of any command, code that starts with our program those of the named
            // command. Code of other programs is skipped.
            let words = piece.trim_start_matches("sudo ");
            let (program, rest) = words.split_once(' ').unwrap_or((words, ""));
            let known = if program.starts_with("--") {
                &any
            } else if program.rsplit('/').next() == Some("quietwire") && rest.contains("--") {
                let command = longest(&commands, |(name, _)| name, rest);
                &command
                    .unwrap_or_else(|| panic!("{page}: no command matches `{piece}`"))
                    .1
            } else {
                continue;
            };
            for option in options(&piece) {
                checked += 1;
                assert!(
                    known.contains(&option) || OF_ALL.contains(&&*option),
                    "{page}: --{option} does not exist: `{piece}`"
                );
            }
        }
    }
    assert!(checked > 40, "only {checked} options found in the guide");
}

/// Returns the command whose name starts these words; of several, the one with the longest name.
fn longest<'a, T>(all: &'a [T], name: impl Fn(&T) -> &str, words: &str) -> Option<&'a T> {
    let begins = |one: &&T| {
        let rest = words.strip_prefix(name(one));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    all.iter().filter(begins).max_by_key(|one| name(one).len())
}

#[test]
fn the_longest_matching_command_is_chosen() {
    let names = ["switch", "switch add route", "switch add routes"];
    let of = |words: &str| longest(&names, |name| name, words).copied();
    assert_eq!(of("switch add routes --file x"), Some(names[2]));
    assert_eq!(of("switch add route"), Some(names[1]));
    assert_eq!(of("switch add rule"), Some(names[0]));
    assert_eq!(of("switches"), None);
}

/// Returns the page of a command, or that of its parent command.
fn page_of(name: &str) -> Option<&'static str> {
    longest(&PAGES, |(known, _)| known, name).map(|(_, page)| *page)
}

#[test]
fn the_guide_names_every_option() {
    let commands = commands();
    let names: Vec<&str> = commands.iter().map(|(name, _)| name.as_str()).collect();
    for name in names {
        assert!(page_of(name).is_some(), "{name} has no page");
    }
    for (name, has) in &commands {
        let page = page_of(name).unwrap();
        let text = fs::read_to_string(root().join(page)).unwrap();
        let reported: BTreeSet<String> = code(&text)
            .iter()
            .flat_map(|piece| options(piece))
            .collect();
        let missing: Vec<&String> = has.difference(&reported).collect();
        assert!(
            missing.is_empty(),
            "{page} does not name {missing:?} of {name}"
        );
    }
}

/// Options whose defaults the guide has in another place than beside the option: in a row of the table of levels (`isolation`), and for
/// all commands at once (`root`, `vrf`).
const DEFAULTS_ELSEWHERE: [&str; 3] = ["isolation", "root", "vrf"];

/// Adds the options of a command and its visible subcommands that have defaults: command, option and values.
fn defaults(command: &Command, name: &str, into: &mut Vec<(String, String, Vec<String>)>) {
    let visible = command.get_arguments().filter(|it| !it.is_hide_set());
    for argument in visible.filter(|it| it.get_action().takes_values()) {
        let values: Vec<String> = argument
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy().into_owned())
            .collect();
        if let Some(option) = argument.get_long()
            && !values.is_empty()
        {
            into.push((name.trim().to_owned(), option.to_owned(), values));
        }
    }
    for inner in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        defaults(inner, &format!("{name} {}", inner.get_name()), into);
    }
}

#[test]
fn defaults_are_those_of_the_guide() {
    let mut all = Vec::new();
    defaults(&Cli::command(), "", &mut all);
    let mut checked = 0;
    for (name, option, values) in all {
        // The options of `lab check` are the tester's, on its page.
        if name == "lab check" || DEFAULTS_ELSEWHERE.contains(&option.as_str()) {
            continue;
        }
        let page = page_of(&name).unwrap_or_else(|| panic!("{name} has no page"));
        let text = fs::read_to_string(root().join(page)).unwrap();
        let has_all = |line: &str| values.iter().all(|value| line.contains(value.as_str()));
        assert!(
            text.lines()
                .any(|line| options(line).contains(&option) && has_all(line)),
            "{page} does not have the default {values:?} of --{option} of {name}"
        );
        checked += 1;
    }
    assert!(checked > 40, "{checked}");
}

/// Adds the names of the manual pages of a command and its visible subcommands.
fn add_manual_pages(command: &Command, name: &str, into: &mut BTreeSet<String>) {
    into.insert(format!("{name}.1"));
    for inner in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        add_manual_pages(inner, &format!("{name}-{}", inner.get_name()), into);
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let words: [&OsStr; 3] = [
        OsStr::new("quietwire"),
        OsStr::new("manual"),
        directory.path().as_os_str(),
    ];
    let cli = Cli::try_parse_from(words).unwrap();
    let super::Command::Manual(args) = cli.command else {
        panic!("another command");
    };
    manual::run(&args, Cli::command()).unwrap();
    let mut pages = BTreeSet::new();
    for entry in fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        let page = fs::read_to_string(&path).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{}: {page}", path.display());
        pages.insert(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    let mut expected = BTreeSet::new();
    add_manual_pages(&Cli::command(), "quietwire", &mut expected);
    assert_eq!(pages, expected);
}

#[test]
fn code_and_options_are_found() {
    let page = "Text `--a X` and `b --c`.\n\n    quietwire x \\\n        --d-e\n\n```sh\nf --g=1 --h # no\n```\n";
    let found: Vec<BTreeSet<String>> = code(page).iter().map(|piece| options(piece)).collect();
    let wanted: [&[&str]; 4] = [&["a"], &["c"], &["d-e"], &["g", "h"]];
    let wanted = wanted.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(found, Vec::<BTreeSet<String>>::from(wanted));
}

/// Returns the fenced blocks of one language.
fn fenced(page: &str, language: &str) -> Vec<String> {
    let opening = format!("\n```{language}\n");
    let blocks = page.split(&opening).skip(1);
    blocks
        .map(|block| block.split("\n```").next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn every_configuration_in_the_guide_makes_a_switch() {
    let pages = [
        "docs/switch.md",
        "docs/router.md",
        "docs/kernel-path.md",
        "docs/split-path.md",
        "docs/connections.md",
        "docs/nat.md",
        "docs/load-balancing.md",
    ];
    let texts = pages.map(|page| fs::read_to_string(root().join(page)).unwrap());
    let configurations = texts.each_ref().map(|text| fenced(text, "toml"));
    assert!(configurations.iter().all(|of_page| !of_page.is_empty()));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("switch.toml");
    for configuration in configurations.into_iter().flatten() {
        fs::write(&path, &configuration).unwrap();
        let settings = Settings::read(&path).unwrap_or_else(|error| panic!("{error}"));
        let plan = settings.plan(&"0-7".parse().unwrap());
        assert!(plan.is_ok(), "{plan:?}: {configuration}");
    }
}

#[test]
fn every_description_of_traffic_in_the_guide_makes_sense() {
    let page = fs::read_to_string(root().join("docs/tester.md")).unwrap();
    let descriptions = fenced(&page, "toml");
    assert!(descriptions.len() >= 5);
    let (conversations, descriptions): (Vec<String>, Vec<String>) = descriptions
        .into_iter()
        .partition(|description| description.starts_with("[connections]"));
    assert!(!conversations.is_empty());
    for description in conversations {
        let connections = Connections::parse(&description, Path::new("tester.md"));
        let connections = connections.unwrap_or_else(|error| panic!("{error}: {description}"));
        assert!(connections.has_load(), "{description}");
    }
    for description in descriptions {
        let traffic = Traffic::parse(&description, Path::new("tester.md"));
        let traffic = traffic.unwrap_or_else(|error| panic!("{error}: {description}"));
        let Some(sizes) = &traffic.sizes else {
            continue;
        };
        let smallest = sizes.sequence().into_iter().min();
        assert!(
            smallest >= Some(traffic.frame_size_min()),
            "frames of {smallest:?} octets are too small for the headers: {description}"
        );
    }
}

#[test]
fn requests_in_the_guide_are_understood_and_the_switch_takes_its_file() {
    let page = fs::read_to_string(root().join("docs/partition.md")).unwrap();
    let request = fenced(&page, "toml");
    assert!(!request.is_empty());
    for text in request {
        PartitionRequest::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    }
    let group = |role: Role, cpus: &str| Group {
        role,
        name: role.name().to_owned(),
        cpus: cpus.parse().unwrap(),
        cores: Vec::new(),
        nodes: vec![0],
        memory_mib: 0,
        class: None,
    };
    let plan = Plan {
        groups: vec![group(Role::Host, "0"), group(Role::Forwarding, "1-2")],
        nics: vec![NicPlan {
            pci_address: "0000:17:00.0".to_owned(),
            interface: None,
            node: Some(0),
            queues: vec![QueueCpu {
                queue: 0,
                cpu: CpuId(1),
            }],
            functions: None,
            mtu: 1500,
        }],
        rx_ring_size: 1024,
        tx_ring_size: 2048,
        ..Plan::default()
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("switch.toml");
    fs::write(&path, &Target::Quietwire.render(&plan)[0].text).unwrap();
    let settings = Settings::read(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(settings.forwarding_cpus, Some(plan.cpus(Role::Forwarding)));
    assert_eq!(settings.tx_ring_size, Some(2048));
}

#[test]
fn topologies_in_the_guide_make_sense() {
    let page = fs::read_to_string(root().join("docs/lab.md")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("own.toml");
    let described = fenced(&page, "toml");
    assert_eq!(described.len(), 1);
    for text in described {
        fs::write(&file, text).unwrap();
        quietwire_lab::topology::read(&file).unwrap();
    }
}

/// Splits a study into sections with their headings. The text before the first section has an empty heading.
fn sections(text: &str) -> Vec<(String, String)> {
    let mut sections = vec![(String::new(), String::new())];
    for line in text.lines() {
        if line.starts_with('[') {
            sections.push((line.to_owned(), String::new()));
        }
        if let Some((_, text)) = sections.last_mut() {
            text.push_str(line);
            text.push('\n');
        }
    }
    sections
}

/// Tests the studies of the guide. The first is complete; each of the others replaces the sections of it that have the same
/// headings.
#[test]
fn studies_in_the_guide_make_sense() {
    let pages = ["docs/studies.md", "docs/methods.md"];
    let texts = pages.map(|page| fs::read_to_string(root().join(page)).unwrap());
    let mut shown = texts.iter().flat_map(|text| fenced(text, "toml"));
    let parsed = |text: &str| StudyFile::parse(text, Path::new("the guide's"));
    let whole = shown.next().unwrap();
    let study = parsed(&whole).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(study.cases.len(), 2);
    let mut study = sections(&whole);
    let mut parts = 0;
    for part in shown {
        let part = sections(&part);
        let is_replaced = |heading: &String| part.iter().any(|(new, _)| new == heading);
        study.retain(|(heading, _)| heading.is_empty() || !is_replaced(heading));
        study.extend(part);
        let text: String = study.iter().map(|(_, text)| text.as_str()).collect();
        let read = parsed(&text);
        assert!(read.is_ok(), "{read:?}: {text}");
        parts += 1;
    }
    assert!(parts >= 7, "{parts}");
}

#[test]
fn every_study_in_the_repository_makes_sense() {
    let listed = fs::read_dir(root().join("studies")).unwrap();
    let paths: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    assert!(!paths.is_empty());
    for path in paths {
        let read = StudyFile::read(&path);
        assert!(read.is_ok(), "{read:?}");
    }
}

/// Settings of the units that docs/install.md describes.
const UNITS: [(&str, &[&str]); 4] = [
    (
        "quietwire-switch.service",
        &[
            "Type=notify",
            "ExecStart=/usr/bin/quietwire switch run --config /etc/quietwire/switch.toml",
            "ExecStartPost=-+/bin/sh -c 'test ! -e /run/quietwire/switch.mappings || { timeout 15 /usr/bin/quietwire switch mappings restore /run/quietwire/switch.mappings || echo \"<4>mappings are not restored\" >&2; rm --force /run/quietwire/switch.mappings; }'",
            "ExecStartPost=-+/bin/sh -c 'test ! -e /run/quietwire/switch.connections || { timeout 15 /usr/bin/quietwire switch connections restore /run/quietwire/switch.connections || echo \"<4>connections are not restored\" >&2; rm --force /run/quietwire/switch.connections; }'",
            "ExecStop=-+/bin/sh -c 'timeout 15 /usr/bin/quietwire switch connections save /run/quietwire/switch.connections || echo \"<4>connections are not saved\" >&2'",
            "ExecStop=-+/bin/sh -c 'timeout 15 /usr/bin/quietwire switch mappings save /run/quietwire/switch.mappings || echo \"<4>mappings are not saved\" >&2'",
            "Restart=on-failure",
            "TimeoutStartSec=60s",
            "TimeoutStopSec=30s",
            "WatchdogSec=20s",
            "CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_IPC_LOCK CAP_SYS_ADMIN",
            "SystemCallFilter=@system-service bpf mincore seccomp",
            "RestrictNamespaces=net",
            "NoNewPrivileges=yes",
            "MemoryDenyWriteExecute=yes",
            "ProtectSystem=strict",
            "ReadWritePaths=/run",
            "ProtectHome=yes",
            "PrivateTmp=yes",
        ],
    ),
    (
        "quietwire-partition.service",
        &[
            "Before=quietwire-switch.service",
            "ExecStart=/usr/bin/quietwire partition apply --config /etc/quietwire/partition.toml",
            "ExecStop=/usr/bin/quietwire partition rollback",
            "WantedBy=multi-user.target",
        ],
    ),
    (
        "quietwire-partition-verify.service",
        &[
            "Type=oneshot",
            "ExecStart=/usr/bin/quietwire partition verify",
        ],
    ),
    (
        "quietwire-partition-verify.timer",
        &["OnActiveSec=1s", "OnUnitActiveSec=5min"],
    ),
];

#[test]
fn units_are_those_of_the_guide() {
    let guide = fs::read_to_string(root().join("docs/install.md")).unwrap();
    for (name, settings) in UNITS {
        let path = root().join("packaging/systemd").join(name);
        let unit = fs::read_to_string(path).unwrap();
        for setting in settings {
            assert!(
                unit.lines().any(|line| line == *setting),
                "{name}: {setting}"
            );
        }
        let reported = name.trim_end_matches(".service");
        assert!(guide.contains(reported), "{name} is not in the guide");
        // Before version 253, systemd denies all devices but the clock to a unit with ProtectClock.
        let limits = ["DeviceAllow=", "PrivateDevices=", "ProtectClock="];
        let is_limit = |line: &str| limits.iter().any(|limit| line.starts_with(limit));
        assert!(!unit.lines().any(is_limit), "{name} limits device nodes");
    }
}
