// SPDX-License-Identifier: Apache-2.0
//! Tests of guests: real virtual machines with quietwire's agent. Frames of the tester pass the switch on the host and the
//! guest's network function and return, all of them and undamaged; a guest that does not start is reported with its console;
//! a guest left behind is removed. Also guests without the agent, whose kernel drives virtio: downloads, an IOMMU, live
//! migration. Requires root, QEMU and the packages of `images/build`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "guests/downloads.rs"]
mod downloads;
#[path = "guests/iommu.rs"]
mod iommu;
#[path = "guests/machine.rs"]
mod machine;
#[path = "guests/migration.rs"]
mod migration;
#[path = "guests/rig.rs"]
mod rig;
#[path = "peers/sockets.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod sockets;
#[path = "switch_ports/rig.rs"]
#[allow(dead_code, reason = "each binary uses a part of the shared modules")]
mod switches;

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use quietwire_base::{ProcessId, wait_until};
use quietwire_host::journal::{self, Change, Journal};
use quietwire_host::roles::Roles;
use quietwire_host::threads::{allowed_cpus, online_cpus, threads_of};
use quietwire_host::{CpuId, CpuList};
use quietwire_lab::guest::agent::protocol::{Routing, TestpmdMode, Vnf, VnfKind};
use quietwire_lab::guest::{Accelerator, AcceleratorChoice, Guest, Image, acceleration, console};
use quietwire_lab::{Case, Lab, LabOptions, NeighbourPlace, NeighbourSpec};

use rig::{DEADLINE, Rig, alone, image, spec};
use switches::Carrier;

#[test]
fn whether_guests_boot_under_kvm_is_found_out_once() {
    let _alone = alone();
    let found = acceleration(AcceleratorChoice::Auto, &image()).unwrap();
    assert!(!found.reason.is_empty());
    assert_eq!(
        acceleration(AcceleratorChoice::Auto, &image()).unwrap(),
        found
    );
    let asked = acceleration(AcceleratorChoice::Software, &image()).unwrap();
    assert_eq!(asked.accelerator, Accelerator::Software);
    let kvm = acceleration(AcceleratorChoice::Kvm, &image());
    match found.accelerator {
        Accelerator::Kvm => assert_eq!(kvm.unwrap(), found),
        Accelerator::Software => assert!(kvm.unwrap_err().to_string().contains("KVM")),
    }
}

#[test]
fn the_same_inputs_give_the_same_image() {
    let build = |cache: &Path| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../images/build");
        let mut command = Command::new(script);
        command
            .args(["--program", "/bin/true", "--cache"])
            .arg(cache);
        let output = command.output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{log}");
        let printed = String::from_utf8(output.stdout).unwrap();
        (std::path::PathBuf::from(printed.trim()), log)
    };
    // The kernel has been downloaded already, and extracting it takes longest.
    let shared = image().directory.parent().unwrap().to_owned();
    let caches = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for cache in &caches {
        let kernels = fs::read_dir(&shared).unwrap().map(|entry| entry.unwrap());
        let kernels =
            kernels.filter(|entry| entry.file_name().to_string_lossy().starts_with("kernel-"));
        for kernel in kernels {
            let mut command = Command::new("cp");
            command.arg("-a").arg(kernel.path()).arg(cache.path());
            assert!(command.status().unwrap().success());
        }
    }
    let [one, two] = [0, 1].map(|index| build(caches[index].path()).0);
    assert_eq!(one.file_name(), two.file_name());
    for file in ["vmlinuz", "initramfs", "manifest"] {
        let read = |image: &Path| fs::read(image.join(file)).unwrap();
        assert!(read(&one) == read(&two), "{file} differs");
    }
    let (again, log) = build(caches[0].path());
    assert!(again == one && !log.contains("building"), "{log}");
}

/// Returns the traffic of a router's two networks: the first port sends to the router's first address, and the second,
/// mirrored, to its second.
fn routed(macs: [&str; 2]) -> (String, Routing) {
    let traffic = format!(
        "[traffic]\nsizes = 128\nintegrity = true\n\
         [traffic.ethernet]\nsource = \"{}\"\ndestination = \"{}\"\n\
         [traffic.ipv4]\nsource = \"198.18.0.1\"\ndestination = \"198.18.1.1\"\n",
        macs[1], macs[0]
    );
    let routing = Routing {
        addresses: [
            (0, vec!["198.18.0.254/24".parse().unwrap()]),
            (1, vec!["198.18.1.254/24".parse().unwrap()]),
        ]
        .into(),
        routes: vec![(
            "203.0.113.0/24".parse().unwrap(),
            "198.18.1.1".parse().unwrap(),
        )],
        neighbours: vec![
            (
                0,
                "198.18.0.1".parse().unwrap(),
                "02:00:00:00:aa:00".parse().unwrap(),
            ),
            (
                1,
                "198.18.1.1".parse().unwrap(),
                "02:00:00:00:aa:01".parse().unwrap(),
            ),
        ],
    };
    (traffic, routing)
}

fn vnf(kind: VnfKind) -> Vnf {
    Vnf {
        kind,
        forwarding_cpus: None,
        shares_cpus: true,
        queues: 1,
        frame_size_max: 1518,
    }
}

#[test]
fn network_functions_bring_every_frame_back() {
    bring_every_frame_back(|kind| !matches!(kind, VnfKind::LinuxBridge | VnfKind::Bridge));
}

#[test]
#[ignore = "takes half a minute where guests are emulated; make test-labs runs it"]
fn all_network_functions_bring_every_frame_back() {
    bring_every_frame_back(|_| true);
}

/// Runs those of the network functions in a guest, one after the other.
fn bring_every_frame_back(runs: impl Fn(&VnfKind) -> bool) {
    let _alone = alone();
    let rig = Rig::new();
    let spec = rig.spec();
    let macs = [0, 1].map(|port| spec.ports[port].mac.to_string());
    let mut journal = Journal::open(&rig.path("journal")).unwrap();
    let found = acceleration(spec.accelerator, &image()).unwrap();
    let guest = Guest::start(
        &mut journal,
        &spec,
        &image(),
        &found,
        &rig.path("vnf"),
        None,
    )
    .unwrap();
    check_record(&guest);
    check_agent(&guest);

    let (to_router, routing) = routed([&macs[0], &macs[1]]);
    let plain = "[traffic]\nsizes = [[70, 1], [1518, 1]]\nintegrity = true\n";
    let kinds = [
        (VnfKind::Testpmd(TestpmdMode::Macswap), plain),
        (VnfKind::Router(routing.clone()), &to_router),
        (VnfKind::LinuxRouter(routing), &to_router),
        (VnfKind::LinuxBridge, plain),
        (VnfKind::Bridge, plain),
    ];
    for (kind, traffic) in kinds.into_iter().filter(|(kind, _)| runs(kind)) {
        let mut agent = guest.agent().unwrap();
        let started = agent.start(&vnf(kind.clone())).unwrap_or_else(|error| {
            panic!("{kind:?}: {error}\n{}", guest.console().unwrap());
        });
        assert!(!started.commands.is_empty());
        let carrier = match kind {
            VnfKind::LinuxRouter(_) | VnfKind::LinuxBridge => Carrier::Kernel,
            _ => Carrier::SharedMemory,
        };
        let frames = rig.every_frame_comes_back(&format!("{kind:?}"), carrier, traffic);
        // testpmd updates its statistics once a second.
        let mut counted = Vec::new();
        let all = wait_until(DEADLINE, || {
            counted = agent.counters().unwrap();
            counted.len() == 2
                && counted
                    .iter()
                    .all(|port| 2 * port.rx_frames >= frames && 2 * port.tx_frames >= frames)
        });
        assert!(all, "{kind:?}: {frames} frames, and {counted:?}");
        let twice = agent.start(&vnf(VnfKind::Bridge)).unwrap_err();
        assert!(twice.to_string().contains("already running"), "{twice}");
        agent.stop().unwrap();
    }
    let pid = ProcessId::of(i32::try_from(guest.pid()).unwrap()).unwrap();
    assert!(guest.console().unwrap().contains("Linux version"));
    drop(guest);
    assert!(!pid.is_alive());
    let undone = journal::undo(&journal::read(journal.path()).unwrap());
    assert!(
        undone
            .iter()
            .all(|(_, outcome)| !matches!(outcome, journal::UndoOutcome::Failed(_))),
        "{undone:?}"
    );
    assert!(!rig.path("vnf").exists());
}

/// Checks that the guest's properties are as recorded.
fn check_record(guest: &Guest) {
    let record = guest.record().unwrap();
    assert_eq!(record.hello.as_ref().unwrap().cpus.len(), 2);
    assert_eq!(
        record.hello.as_ref().unwrap().ports,
        ["0000:00:10.0", "0000:00:11.0"]
    );
    assert_eq!(record.vcpus.len(), 2);
    for vcpu in &record.vcpus {
        let cpus = allowed_cpus(Path::new("/"), vcpu.tid).unwrap();
        assert_eq!(cpus, CpuList::from_iter(vcpu.cpu));
    }
    let rest = allowed_cpus(Path::new("/"), i32::try_from(record.pid).unwrap()).unwrap();
    assert_eq!(rest, record.spec.service_cpus);
    serde_json::to_string(record).unwrap();
}

/// Checks the agent's functions, except network functions.
fn check_agent(guest: &Guest) {
    let mut agent = guest.agent().unwrap();
    let states = agent.cpu_states().unwrap();
    assert!(
        states.len() == 2 && states.iter().any(|cpu| cpu.system_s > 0.0),
        "{states:?}"
    );
    let jitter = agent
        .jitter(&"1".parse().unwrap(), Duration::from_millis(50))
        .unwrap();
    assert!(jitter.cpus[0].readings > 0, "{jitter:?}");
    let ran = agent
        .run(&["sh", "-c", "uname -n; exit 3"], DEADLINE)
        .unwrap();
    assert_eq!(ran.code, Some(3));
    let error = agent.counters().unwrap_err().to_string();
    assert!(error.contains("start one first"), "{error}");

    // The shell, as `quietwire lab shell` joins it with a terminal.
    let (mut keys, mut input) = UnixStream::pair().unwrap();
    let (mut output, mut screen) = UnixStream::pair().unwrap();
    let socket = guest.places().shell_socket.clone();
    let joined = std::thread::spawn(move || {
        console::attach(&socket, &mut input, &mut output, &AtomicBool::new(false))
    });
    screen
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut shown = String::new();
    assert!(
        wait_until(DEADLINE, || {
            // Sent again, because input before the shell's start may be lost.
            keys.write_all(b"echo $((6 * 7))\n").unwrap();
            let mut buffer = [0; 4096];
            let count = screen.read(&mut buffer).unwrap_or(0);
            shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
            shown.contains("42")
        }),
        "{shown}"
    );
    keys.shutdown(Shutdown::Write).unwrap();
    drop(screen);
    // The rest of the shell's output is dropped.
    let _ = joined.join().unwrap();
}

#[test]
fn a_guest_that_does_not_come_up_is_reported_with_its_console() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(&directory.path().join("journal")).unwrap();
    let found = acceleration(AcceleratorChoice::Auto, &image()).unwrap();
    let mut fails = |image: &Image, ready_timeout: Duration, name: &str| {
        let mut spec = spec();
        spec.ready_timeout = ready_timeout;
        Guest::start(
            &mut journal,
            &spec,
            image,
            &found,
            &directory.path().join(name),
            None,
        )
        .unwrap_err()
        .to_string()
    };
    let broken = directory.path().join("initramfs");
    fs::write(&broken, "no archive").unwrap();
    let broken = Image::of_files(&image().kernel, &broken).unwrap();
    let error = fails(&broken, DEADLINE, "broken");
    assert!(
        error.contains("Kernel panic") && error.contains("ended unexpectedly"),
        "{error}"
    );
    let error = fails(&image(), Duration::from_millis(50), "slow");
    assert!(error.contains("did not come up in 0.05 s"), "{error}");
    let mut option = spec();
    option.vcpu_cpus = vec![CpuId(0); 300];
    let error = Guest::start(
        &mut journal,
        &option,
        &image(),
        &found,
        &directory.path().join("many"),
        None,
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("QEMU said") && error.contains("300"),
        "{error}"
    );
    let processes = journal::read(journal.path()).unwrap();
    for change in processes {
        if let Change::ProcessStarted { process, .. } = change {
            assert!(!process.is_alive());
        }
    }
}

/// Environment variable with the directory in which a process of this test starts a guest, to be killed.
const VICTIM: &str = "QUIETWIRE_TEST_GUEST_VICTIM";

/// Starts a guest in a lab that is never taken down.
fn run_victim(state: &Path) {
    let lab = state.join(format!("lab-{}", std::process::id()));
    fs::create_dir_all(&lab).unwrap();
    let mut own = Journal::open(&lab.join("lab.jsonl")).unwrap();
    own.record(&Change::DirectoryCreated { path: lab.clone() })
        .unwrap();
    let mut case = Journal::open(&lab.join("case-0001.jsonl")).unwrap();
    let found = acceleration(AcceleratorChoice::Auto, &image()).unwrap();
    let guest = Guest::start(&mut case, &spec(), &image(), &found, &lab.join("vnf"), None);
    wait_until(DEADLINE, || false);
    drop(guest);
}

#[test]
fn guests_of_a_killed_lab_end_when_the_lab_is_cleaned() {
    if let Some(state) = std::env::var_os(VICTIM) {
        return run_victim(Path::new(&state));
    }
    let _alone = alone();
    // Built in advance, so that the victim does not build it.
    image();
    let state = tempfile::tempdir().unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "guests_of_a_killed_lab_end_when_the_lab_is_cleaned",
        ])
        .env(VICTIM, state.path())
        .spawn()
        .unwrap();
    let lab = state.path().join(format!("lab-{}", victim.id()));
    let boots = || fs::read(lab.join("vnf/console.log")).is_ok_and(|text| !text.is_empty());
    let has_begun = wait_until(DEADLINE, || {
        boots() || !matches!(victim.try_wait(), Ok(None))
    });
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(has_begun && boots());
    let changes = journal::read(&lab.join("case-0001.jsonl")).unwrap();
    let process = |change: &Change| match change {
        Change::ProcessStarted { process, .. } => Some(*process),
        _ => None,
    };
    let qemu = changes.iter().find_map(process).unwrap();
    // The guest ends with the process that started it.
    assert!(wait_until(DEADLINE, || !qemu.is_alive()));
    let output = Command::new(rig::quietwire())
        .args(["lab", "clean", "--state-directory"])
        .arg(state.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!lab.exists());
}

#[test]
#[ignore = "takes half a minute where guests are emulated; make test-labs runs it"]
fn neighbours_work_in_a_guest_on_their_cpus_and_go_with_their_case() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let mut lab = Lab::open(LabOptions {
        state_directory: state.clone(),
        program: rig::quietwire().into(),
    })
    .unwrap();
    let last = online_cpus(Path::new("/")).unwrap().iter().next_back();
    let neighbours = NeighbourSpec {
        stressors: vec!["--cpu 1 --cpu-method sqrt".to_owned()],
        place: NeighbourPlace::Guest,
        network: None,
        cpus: last.into_iter().collect(),
    };
    neighbours.check().unwrap();
    let case = Case {
        roles: Roles::default(),
        partition: None,
    };
    lab.begin(&case).unwrap();
    let commands = lab.start_neighbours(&neighbours).unwrap();
    let in_guest = commands
        .iter()
        .find(|line| line.starts_with("in the guest"));
    let in_guest = in_guest.unwrap_or_else(|| panic!("{commands:?}"));
    assert!(in_guest.contains("stress-ng --cpu 1"), "{in_guest}");
    let lab_directory = state.join(format!("lab-{}", std::process::id()));
    let changes = journal::read(&lab_directory.join("case-0001.jsonl")).unwrap();
    let process = |change: &Change| match change {
        Change::ProcessStarted { process, .. } => Some(*process),
        _ => None,
    };
    let qemu = changes.iter().find_map(process).unwrap();
    let threads = threads_of(Path::new("/"), u32::try_from(qemu.pid).unwrap()).unwrap();
    for thread in &threads {
        assert_eq!(thread.cpus, neighbours.cpus, "{thread:?}");
    }
    let at_work = lab.neighbours_at_work().unwrap().unwrap();
    // Work in the guest is visible on the host as time of its vCPU.
    assert!(wait_until(DEADLINE, || {
        let intensity = lab.intensity_since(&at_work).unwrap();
        intensity.threads >= threads.len() && intensity.cpu_time_s > 0.3
    }));
    lab.check().unwrap();
    lab.leave().unwrap();
    assert!(!qemu.is_alive());
    let set = |change: &Change| match change {
        Change::CpusetCreated { path, .. } => Some(path.clone()),
        _ => None,
    };
    let set = changes.iter().find_map(set).unwrap();
    assert!(!set.exists(), "{}", set.display());
    // A neighbour that ends is reported.
    lab.begin(&case).unwrap();
    lab.start_neighbours(&neighbours).unwrap();
    let changes = journal::read(&lab_directory.join("case-0002.jsonl")).unwrap();
    changes
        .iter()
        .find_map(process)
        .unwrap()
        .end(DEADLINE)
        .unwrap();
    let mut log = String::new();
    let is_reported = wait_until(DEADLINE, || {
        log = lab
            .check()
            .map_or_else(|error| error.to_string(), |()| String::new());
        !log.is_empty()
    });
    assert!(
        is_reported && log.contains("'neighbours' ended by itself"),
        "{log}"
    );
    lab.down().unwrap();
    assert!(!lab_directory.exists());
}
