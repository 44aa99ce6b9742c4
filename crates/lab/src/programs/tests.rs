// SPDX-License-Identifier: Apache-2.0
//! Commands that adapters send to programs, and how adapters parse the replies, with a stub for programs that Debian has no package of.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use quietwire_base::Deadline;
use quietwire_host::journal::Journal;
use quietwire_switch::config::rules::RuleFile;

use super::*;
use crate::counts::TIMEOUT;
use crate::element::{Attachment, ElementContext, Plan, PortPlan};
use crate::error::LabError;
use crate::own_view::OwnView;
use crate::topology::{ElementPlace, Encapsulation, Forwarding, RouterPlace};

#[test]
fn the_rules_of_a_firewall_without_rules_are_rules_of_the_switch() {
    let rules = RuleFile::parse(Path::new("firewall.toml"), FIREWALL_RULES).unwrap();
    assert!(!rules.rules.is_empty() && rules.default.is_some());
}

pub(crate) fn plan(directory: &Path) -> Plan {
    let cpus = quietwire_host::threads::online_cpus(Path::new("/")).unwrap();
    let port = |index: usize| PortPlan {
        attachment: Attachment::Memif {
            socket: directory.join(format!("l{index}.sock")),
            is_server: true,
        },
    };
    Plan {
        name: "S".to_owned(),
        index: 1,
        tag: format!("quietwire-test-{}", std::process::id()),
        place: ElementPlace::Host,
        program: Program::Vpp,
        directory: directory.to_owned(),
        ports: vec![port(0), port(1)],
        joins: vec![[0, 1]],
        monitors: Vec::new(),
        neighbour_ports: Vec::new(),
        forwarding: Forwarding::CrossConnect,
        encapsulation: Encapsulation::L2,
        destinations: 1,
        cpus: cpus.clone(),
        rest: cpus,
        is_shared: true,
        namespace: None,
        router: RouterPlace::default(),
        rules: None,
        config: None,
        image: None,
        settings: None,
    }
}

/// A program that writes its input into a file, and answers some commands.
const CLIENT: &str = r#"#!/bin/sh
shift; shift
case "$*" in
"show version") [ -e "$(dirname "$0")/up" ] && echo "vpp v23.10-stub" || exit 1 ;;
"show interface") printf '%s\n' \
    "memif1/0   1  up  9000/0/0/0     rx packets   12" "                                  tx packets   7" \
    "memif2/0   2  up  9000/0/0/0     rx packets   7" ;;
"show errors") echo "  3  memif1/0-tx  no free tx slots  error" ;;
"show runtime") printf '%s\n' "Thread 0 vpp_main (lcore 0)" "unix-epoll-input polling 9 0 0 1.0e3 0.00" \
    "Thread 1 vpp_wk_0 (lcore 1)" "memif-input polling 5 12 0 1.00e1 2.40" "l2-input active 4 12 0 2.50e1 3.00" ;;
"show hardware-interfaces") echo "memif1/0  1  up  memif1/0" ;;
"show mode") echo "l2 xconnect memif1/0 memif2/0" ;;
*"l2 bridge"*) echo "unknown input 'bridge'" ;;
show*) exit 1 ;;
*) echo "$*" >>"$(dirname "$0")/told" ;;
esac
"#;
const DAEMON: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "vpp v23.10-stub"; exit; }
cp "$2" "$(dirname "$0")/startup"
touch "$(dirname "$0")/up"
exec sleep 600
"#;

fn script(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Reads the cycles of VPP twice, and checks that each reading clears its counts and adds an interval. The stub prints the same interval
/// each time.
fn assert_clears_its_counts(vpp: &vpp::Vpp, plan: &Plan, before: &OwnView) {
    let read = || vpp.cycles(plan).unwrap().unwrap();
    let (first, second) = (read(), read());
    let increase = second.since(&first).unwrap();
    assert_eq!((increase.cycles, increase.frames), (300, 12));
    assert_eq!(increase.input_cycles, Some(120));
    let sent = std::fs::read_to_string(plan.directory.join("told")).unwrap();
    assert_eq!(sent.matches("clear runtime\n").count(), 2);
    // The counters of the view do not fall.
    let after = vpp.own_view(plan, Deadline::after(TIMEOUT)).unwrap();
    let worker = &after.since(before).unwrap().parts["vpp_wk_0"];
    assert_eq!(worker.counters["l2-input vectors"], 24);
    assert_eq!(worker.values["l2-input clocks"], 25.0);
}

#[test]
fn vpp_is_started_connected_and_configured() {
    let directory = tempfile::tempdir().unwrap();
    let [daemon, client] = ["vpp", "vppctl"].map(|name| directory.path().join(name));
    script(&daemon, DAEMON);
    script(&client, CLIENT);
    let mut vpp = vpp::Vpp::of(Some(daemon), Some(client));
    assert_eq!(vpp.probe().unwrap(), "vpp v23.10-stub");
    let mut journal = Journal::open(&directory.path().join("journal")).unwrap();
    let mut commands = Vec::new();
    let mut context = ElementContext::new(&mut journal, &mut commands);
    let plan = plan(directory.path());
    vpp.start(&plan, &mut context).unwrap();
    vpp.connect(&plan, &mut context).unwrap();
    vpp.program(&plan, &mut context).unwrap();
    let reported = std::fs::read_to_string(directory.path().join("told")).unwrap();
    let sockets = ["l0", "l1"].map(|name| {
        directory
            .path()
            .join(format!("{name}.sock"))
            .display()
            .to_string()
    });
    let expected = [
        format!("create memif socket id 1 filename {}", sockets[0]),
        "create interface memif id 0 socket-id 1 master".to_owned(),
        "set interface state memif1/0 up".to_owned(),
        format!("create memif socket id 2 filename {}", sockets[1]),
        "create interface memif id 0 socket-id 2 master".to_owned(),
        "set interface state memif2/0 up".to_owned(),
        "set interface l2 xconnect memif1/0 memif2/0".to_owned(),
        "set interface l2 xconnect memif2/0 memif1/0".to_owned(),
    ];
    assert_eq!(reported.lines().collect::<Vec<_>>(), expected);
    let startup = std::fs::read_to_string(directory.path().join("startup")).unwrap();
    assert!(
        startup.contains("corelist-workers") && startup.contains("dpdk_plugin.so { disable }"),
        "{startup}"
    );
    assert!(startup.contains("buffers { page-size default"), "{startup}");
    let counts = vpp.frames(&plan, Deadline::after(TIMEOUT)).unwrap();
    let counted = |port: &str| (counts.ports[port].received, counts.ports[port].sent);
    assert_eq!([counted("p0"), counted("p1")], [(12, 4), (7, 0)]);
    let view = vpp.own_view(&plan, Deadline::after(TIMEOUT)).unwrap();
    assert_eq!(view.drivers["p0"]["rx packets"], 12);
    let errors = &view.parts["errors"].counters;
    assert_eq!(errors["memif1/0-tx no free tx slots"], 3);
    assert!(view.unavailable.is_empty(), "{:?}", view.unavailable);
    assert_clears_its_counts(&vpp, &plan, &view);
    assert!(
        vpp.configuration(&plan)
            .unwrap()
            .iter()
            .any(|line| line.contains("xconnect"))
    );
    // The program reports an error on its standard output, and exits with 0.
    let bridged = Plan {
        forwarding: Forwarding::Bridge,
        ..plan.clone()
    };
    let error = vpp.program(&bridged, &mut context).unwrap_err().to_string();
    assert!(error.contains("unknown input"), "{error}");
    vpp.stop().unwrap();
    assert!(commands.iter().any(|command| command.contains("xconnect")));
}

/// A program that answers as testpmd does. At each reading, it has received and sent 1,000 frames more, of 50 cycles each.
const TESTPMD: &str = r#"#!/bin/sh
echo "$*" >"$(dirname "$0")/options"
printf 'testpmd> '
frames=0
while read -r line; do
    printf '%s\r\n' "$line"
    case "$line" in
    start) echo "io packet forwarding - ports=2 - cores=1 - streams=2" ;;
    "set record-core-cycles on") recorded=yes ;;
    "show fwd stats all")
        printf '%s\n' "  +++ Accumulated forward statistics for all ports+++" \
            "  RX-packets: $frames  RX-dropped: 0  RX-total: $frames" "  TX-packets: $frames  TX-dropped: 0  TX-total: $frames"
        [ -z "$recorded" ] || [ $frames = 0 ] ||
            echo "  CPU cycles/packet=50.00 (busy cycles=$((50 * frames)) / total io packets=$frames) at 2100 MHz Clock"
        frames=$((frames + 1000)) ;;
    esac
    printf 'testpmd> '
done
"#;

/// Starts a testpmd of this text with a plan in a directory.
fn started_testpmd(directory: &Path, text: &str) -> (testpmd::Testpmd, Plan, Result<(), LabError>) {
    let program = directory.join("testpmd");
    script(&program, text);
    let mut testpmd = testpmd::Testpmd::of("io", program.display().to_string());
    let mut journal = Journal::open(&directory.join("journal")).unwrap();
    let mut commands = Vec::new();
    let mut context = ElementContext::new(&mut journal, &mut commands);
    let plan = plan(directory);
    let outcome = testpmd.start(&plan, &mut context);
    (testpmd, plan, outcome)
}

#[test]
fn testpmd_reports_the_cycles_of_its_frames() {
    let directory = tempfile::tempdir().unwrap();
    let (mut testpmd, plan, outcome) = started_testpmd(directory.path(), TESTPMD);
    outcome.unwrap();
    let options = std::fs::read_to_string(directory.path().join("options")).unwrap();
    assert!(options.contains(" --interactive --nb-cores="), "{options}");
    let read = || testpmd.cycles(&plan).unwrap().unwrap();
    let (first, second, third) = (read(), read(), read());
    assert_eq!((first.cycles, first.frames), (0, 0));
    assert_eq!(third.since(&second), second.since(&first));
    let increase = third.since(&second).unwrap();
    assert_eq!((increase.cycles, increase.frames), (50_000, 1000));
    let configuration = testpmd.configuration(&plan).unwrap();
    assert_eq!(configuration[1..], ["set record-core-cycles on", "start"]);
    // An end without a request is an error.
    testpmd.check().unwrap();
    testpmd.processes()[0].kill().unwrap();
    let error = testpmd.check().unwrap_err().to_string();
    assert!(error.contains("died, with signal: 9"), "{error}");
    let reason = testpmd.cycles(&plan).unwrap_err();
    assert!(reason.starts_with("its standard input: "), "{reason}");
    testpmd.stop().unwrap();
}

#[test]
fn a_testpmd_that_does_not_forward_or_count_is_reported() {
    let start = |text: &str| {
        let directory = tempfile::tempdir().unwrap();
        let (mut testpmd, plan, outcome) = started_testpmd(directory.path(), text);
        let cycles = testpmd.cycles(&plan);
        testpmd.stop().unwrap();
        (outcome.map_err(|error| error.to_string()), cycles)
    };
    let ended = TESTPMD.replace("printf 'testpmd> '\nframes=0", "echo no memory; exit 1");
    let (outcome, cycles) = start(&ended);
    let error = outcome.unwrap_err();
    assert!(
        error.contains("ended at once, with exit status: 1"),
        "{error}"
    );
    assert!(error.contains("no memory"), "{error}");
    assert_eq!(cycles.unwrap_err(), "it was not started");
    let without_ports = TESTPMD.replace("frames=0", "frames=5").replace(
        "printf 'testpmd> '\nframes",
        "echo Start ports failed\nprintf 'testpmd> '\nframes",
    );
    let error = start(&without_ports).0.unwrap_err();
    assert!(error.contains("could not start its ports"), "{error}");
    // It forwards, and does not count cycles.
    let silent = TESTPMD
        .replace("recorded=yes", ":")
        .replace("frames=0", "frames=5");
    let (outcome, cycles) = start(&silent);
    outcome.unwrap();
    assert_eq!(cycles.unwrap_err(), "`show fwd stats all` has no cycles");
}

#[test]
fn programs_that_are_not_installed_are_unavailable_with_a_reason() {
    let printed = vpp::Vpp::of(None, None).probe().unwrap_err().to_string();
    assert!(
        printed.starts_with("unavailable because vpp is not installed"),
        "{printed}"
    );
    let nowhere = Path::new("/nowhere/else/quietwire");
    for program in Program::ALL {
        match availability(program, nowhere) {
            Ok(version) => assert!(!version.is_empty(), "{program}"),
            Err(reason) => assert!(
                reason.to_string().starts_with("unavailable because "),
                "{program}: {reason}"
            ),
        }
    }
}
