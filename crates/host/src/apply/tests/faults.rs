// SPDX-License-Identifier: Apache-2.0
//! Applying and rolling back while operations on files fail, and processes are killed, at any step. Each seed is one sequence of processes
//! with their faults. After each process the machine is exactly as before, exactly as planned, or every difference is reported. Rolling back
//! without faults then restores the machine exactly.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;

use nix::errno::Errno;
use quietwire_base::LockFile;
use quietwire_base::faults::{Faults, Injected, Random, When, run_process, run_seeds};

use super::*;
use crate::files::Files;
use crate::files::faulty::Faulty;

/// Seeds of `make test`.
const SEEDS: u64 = 1000;
/// Number of no process.
const DEAD: &str = "2000000000";

/// The kernel's files: resctrl's and the others of the fake, and control groups with the files of the kernel.
#[derive(Debug)]
struct Kernel(FakeResctrl);

/// Files of a new CPU set in both versions.
const SET_FILES: [(&str, &str); 6] = [
    ("cgroup.procs", ""),
    ("cgroup.subtree_control", "\n"),
    ("cpuset.cpus", "\n"),
    ("cpuset.mems", "\n"),
    ("cpuset.sched_load_balance", "1\n"),
    ("cpuset.cpus.partition", "member\n"),
];

impl Files for Kernel {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.0.read(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        if path.ends_with("cpuset.cpus") && text.trim().is_empty() {
            // The kernel does not empty the list of a group with processes.
            let processes = self.0.read(&path.with_file_name("cgroup.procs"));
            let has_processes = processes.is_ok_and(|processes| !processes.trim().is_empty());
            if has_processes && !self.0.read(path)?.trim().is_empty() {
                return Err(Errno::ENOSPC.into());
            }
        }
        if !path.ends_with("cgroup.subtree_control") {
            return self.0.write(path, text);
        }
        let now = self.0.read(path)?;
        let (sign, name) = text.split_at(1);
        let others = now.split_whitespace().filter(|other| *other != name);
        let added = (sign == "+").then_some(name);
        let names: Vec<&str> = others.chain(added).collect();
        self.0.write(path, &(names.join(" ") + "\n"))?;
        // The kernel creates and removes the controller's files in the groups below.
        let top = path.parent().unwrap();
        for set in Disk.list(top)? {
            if !top.join(&set).is_dir() {
                continue;
            }
            for (file, text) in SET_FILES
                .iter()
                .filter(|(file, _)| file.starts_with("cpuset."))
            {
                let file = top.join(&set).join(file);
                match (sign, file.exists()) {
                    ("+", false) => fs::write(file, text)?,
                    ("-", true) => fs::remove_file(file)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.0.make_directory(path)?;
        if path.to_string_lossy().contains("/sys/fs/cgroup/") {
            for (name, text) in SET_FILES {
                self.0.write(&path.join(name), text)?;
            }
        }
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.0.remove_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.list(path)
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.0.is_directory(path)
    }
}

/// Version 2 without the controller in the groups below the root.
const NOT_ENABLED: &[(&str, &str)] = &[
    ("proc/self/mounts", "c /sys/fs/cgroup cgroup2 rw 0 0\n"),
    ("sys/fs/cgroup/cgroup.controllers", "cpu cpuset\n"),
    ("sys/fs/cgroup/cgroup.subtree_control", "cpu\n"),
    ("sys/fs/cgroup/system.slice/cgroup.procs", "\n"),
];

const MACHINES: [&[(&str, &str)]; 3] = [FIRST_VERSION, SECOND_VERSION, NOT_ENABLED];

/// The settings of a machine, by their paths below its root. Tasks and CPUs of resctrl's default group are those of no other group.
type Settings = BTreeMap<PathBuf, String>;

/// Returns true for files that groups of other programs have only while the controller is enabled, with the kernel's values.
fn is_default(file: &Path, text: &str) -> bool {
    let is_ours = file.to_string_lossy().contains(SET_PREFIX);
    let is_of_controller = SET_FILES.iter().any(|(name, default)| {
        name.starts_with("cpuset.") && file.ends_with(name) && text.trim() == default.trim()
    });
    !is_ours && is_of_controller
}

struct Machine {
    root: tempfile::TempDir,
    kernel: Kernel,
}

impl Machine {
    fn new(number: usize) -> Self {
        let Rig { root, fake } = Rig::new(MACHINES[number]);
        Self {
            root,
            kernel: Kernel(fake),
        }
    }

    fn target(&self) -> Target<'_> {
        Target {
            files: &self.kernel,
            storage: &Disk,
            root: self.root.path().to_owned(),
            state_directory: self.root.path().join("run/quietwire/partition"),
        }
    }

    fn settings(&self) -> Settings {
        let mut found = Settings::new();
        let mut directories = vec![PathBuf::new()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(self.root.path().join(&directory)).unwrap() {
                let entry = entry.unwrap();
                let below = directory.join(entry.file_name());
                if below == Path::new("run") {
                    continue;
                }
                if entry.file_type().unwrap().is_dir() {
                    directories.push(below.clone());
                    found.insert(below, "a directory".to_owned());
                } else {
                    let text = fs::read_to_string(entry.path()).unwrap();
                    if !is_default(&below, &text) {
                        found.insert(below, text);
                    }
                }
            }
        }
        for (name, group) in self.kernel.0.groups() {
            let directory = Path::new("sys/fs/resctrl").join(&name);
            let schemata = format!("{:?} {:?}", group.ways, group.share);
            found.insert(directory.join("schemata"), schemata);
            if !name.is_empty() {
                let cpus = format!("{:?}", group.cpus);
                found.insert(directory.join("cpus_list"), cpus);
                found.insert(directory.join("tasks"), format!("{:?}", group.tasks));
            }
        }
        found
    }

    /// Runs one process with faults. Returns `None` if it was killed.
    fn process<T>(&self, faults: &Faults<'_>, act: impl FnOnce(&Target<'_>) -> T) -> Option<T> {
        let files = Faulty {
            kernel: &self.kernel,
            faults,
        };
        let target = Target {
            files: &files,
            storage: faults,
            ..self.target()
        };
        let ended = run_process(|| act(&target));
        self.rename_temporary_files();
        ended
    }

    /// Lets temporary files of this process look like those of a process that has ended.
    fn rename_temporary_files(&self) {
        let own = format!(".{}.new", std::process::id());
        let state = self.target().state_directory;
        for directory in [state.join("rendered"), state] {
            for name in Disk.list(&directory).unwrap_or_default() {
                if let Some(start) = name.strip_suffix(&own) {
                    let dead = directory.join(format!("{start}.{DEAD}.new"));
                    fs::rename(directory.join(&name), dead).unwrap();
                }
            }
        }
    }

    /// Fails unless each difference is at or below one of the places, or one of the texts names its file.
    fn assert_reported(
        &self,
        now: &Settings,
        wanted: &Settings,
        places: &[PathBuf],
        texts: &[String],
    ) {
        for path in now.keys().chain(wanted.keys()) {
            // The kernel ends values with a newline, plain files only if it was written.
            let value = |settings: &Settings| settings.get(path).map(|text| text.trim().to_owned());
            if value(now) == value(wanted) {
                continue;
            }
            let full = self.root.path().join(path);
            let is_named = places.iter().any(|place| full.starts_with(place))
                || texts
                    .iter()
                    .any(|text| text.contains(full.to_str().unwrap()));
            assert!(
                is_named,
                "{}: {:?} instead of {:?}; reported are {places:#?} {texts:#?}",
                path.display(),
                now.get(path),
                wanted.get(path)
            );
        }
    }

    /// Fails unless the status reports every difference from the original settings.
    fn assert_status_reports(&self, before: &Settings) {
        let status = status(&self.target()).unwrap();
        let places: Vec<PathBuf> = status.changes.iter().flat_map(places_of).collect();
        self.assert_reported(&self.settings(), before, &places, &[]);
    }
}

fn places_of(change: &Change) -> Vec<PathBuf> {
    match change {
        Change::FileWritten { path, .. }
        | Change::CpusetCreated { path, .. }
        | Change::ControllerEnabled { path }
        | Change::GroupCreated { path } => vec![path.clone()],
        Change::TasksMoved { tasks, to } => {
            let formers = tasks.iter().map(|place| place.former.clone());
            formers.chain([to.clone()]).collect()
        }
        other => panic!("{other}"),
    }
}

fn smaller() -> Plan {
    let mut smaller = plan();
    smaller.groups[3].role = Role::Neighbour;
    smaller.groups[3].name = "web".to_owned();
    smaller.classes.pop();
    smaller.frequencies.clear();
    smaller.huge_pages[0].pages = 32;
    smaller.nics[0].functions = Some(1);
    smaller
}

/// The state of a machine on which one of the plans was applied earlier.
fn machine(number: usize, earlier: u64) -> Machine {
    let machine = Machine::new(number);
    let earlier = match earlier {
        0 => return machine,
        1 => plan(),
        _ => smaller(),
    };
    let report = apply(&machine.target(), &earlier, None).unwrap();
    assert_eq!(report.failures(), 0, "{report:?}");
    machine
}

/// Result without faults.
struct Reference {
    /// Settings of the machine before any plan.
    before: Settings,
    /// Settings when the plan is applied.
    after: Settings,
    /// Operations of applying it, and of rolling it back.
    operations: [u64; 2],
}

impl Reference {
    fn new(number: usize, earlier: u64) -> Self {
        let machine = machine(number, earlier);
        let applying = Faults::new(When::Never, None, Random::new(0));
        let report = machine.process(&applying, |target| apply(target, &plan(), None));
        let report = report.unwrap().unwrap();
        assert_eq!(report.failures(), 0, "{report:?}");
        let after = machine.settings();
        // Groups of other programs lose the CPUs, also if the controller was not enabled for them.
        let slice = after.get(Path::new("sys/fs/cgroup/system.slice/cpuset.cpus"));
        let slice = slice.map(|text| text.trim());
        assert_eq!(slice, (number > 0).then_some("0"));
        let undoing = Faults::new(When::Never, None, Random::new(0));
        let undone = machine.process(&undoing, |target| roll_back(target, false));
        undone.unwrap().unwrap();
        let before = Machine::new(number).settings();
        assert_eq!(machine.settings(), before);
        Self {
            before,
            after,
            operations: [applying.count(), undoing.count()],
        }
    }
}

/// Ends of processes.
#[derive(Debug, Default)]
struct Ends {
    complete: u64,
    reported: u64,
    refused: u64,
    killed: u64,
}

/// Chooses when faults happen in a process with this many operations, and which.
fn choose(random: &mut Random, operations: u64) -> (When, Option<Injected>) {
    let at = random.below(operations);
    let lasting = random.one_of(Errno::EIO, &[Errno::ENOSPC, Errno::EROFS]);
    let lasting = Some(Injected::Refused(lasting));
    match random.below(8) {
        0..4 => (When::Once(at), None),
        4 => (When::FromOnFile(at), lasting),
        5 => (When::FromOnChanges(at), lasting),
        6 => (When::OneIn(16), None),
        _ => (When::OneIn(100), None),
    }
}

fn run(seed: u64, references: &[Vec<Reference>], ends: &mut Ends, trail: &RefCell<Vec<String>>) {
    let mut random = Random::new(seed);
    let number = usize::try_from(random.below(MACHINES.len() as u64)).unwrap();
    let earlier = random.below(3);
    let reference = &references[number][usize::try_from(earlier).unwrap()];
    trail.replace(vec![format!("machine {number}, earlier plan {earlier}")]);
    let before = &reference.before;
    let machine = machine(number, earlier);
    // While one process changes the machine, others see its state, and cannot change it.
    let other = || {
        let target = machine.target();
        let lock = target.state_directory.join("lock");
        if LockFile::holder(&lock).unwrap().is_some() {
            assert!(status(&target).unwrap().busy.is_some());
            let error = apply(&target, &plan(), None).unwrap_err();
            assert!(matches!(error, ApplyError::Busy { .. }), "{error}");
        }
    };
    for _ in 0..=random.below(3) {
        let is_apply = random.below(3) > 0;
        let former = machine.settings();
        let operations = reference.operations[usize::from(!is_apply)];
        let (when, what) = choose(&mut random, operations);
        let own = Random::new(random.below(u64::MAX));
        let faults = Faults::new(when, what, own).with_other(&other);
        let note = |name: &str| {
            let mut trail = trail.borrow_mut();
            trail.push(format!("{name} with faults {when:?}"));
            trail.extend(faults.happened());
        };
        if is_apply {
            let applied = machine.process(&faults, |target| apply(target, &plan(), None));
            note("apply");
            match applied {
                None => {
                    ends.killed += 1;
                    machine.assert_status_reports(before);
                }
                Some(Err(error)) => {
                    ends.refused += 1;
                    assert_eq!(machine.settings(), former, "{error}");
                }
                Some(Ok(report)) => {
                    let left = report.undone.iter().filter(|(_, undone)| undone.is_left());
                    let mut places: Vec<PathBuf> =
                        left.flat_map(|(change, _)| places_of(change)).collect();
                    let mut texts = Vec::new();
                    for one in &report.applied {
                        let text = match &one.outcome {
                            Outcome::Done => continue,
                            Outcome::Partly { what } => what,
                            Outcome::Failed { reason } | Outcome::Fixed { reason } => reason,
                        };
                        places.push(one.difference.place.clone());
                        texts.push(text.clone());
                    }
                    let is_complete = places.is_empty();
                    ends.complete += u64::from(is_complete);
                    ends.reported += u64::from(!is_complete);
                    let now = machine.settings();
                    machine.assert_reported(&now, &reference.after, &places, &texts);
                }
            }
        } else {
            let undone = machine.process(&faults, |target| roll_back(target, false));
            note("rollback");
            match undone {
                None => {
                    ends.killed += 1;
                    machine.assert_status_reports(before);
                }
                Some(Err(_)) => {
                    ends.refused += 1;
                    machine.assert_status_reports(before);
                }
                Some(Ok(undone)) => {
                    let left = undone.iter().filter(|(_, outcome)| outcome.is_left());
                    let places: Vec<PathBuf> =
                        left.flat_map(|(change, _)| places_of(change)).collect();
                    ends.complete += u64::from(places.is_empty());
                    ends.reported += u64::from(!places.is_empty());
                    machine.assert_reported(&machine.settings(), before, &places, &[]);
                }
            }
        }
    }
    trail
        .borrow_mut()
        .push("rollback without faults".to_owned());
    for (change, outcome) in roll_back(&machine.target(), false).unwrap() {
        assert!(!outcome.is_left(), "{change}: {outcome}");
    }
    assert_eq!(machine.settings(), *before);
    let left = Disk
        .list(&machine.target().state_directory)
        .unwrap_or_default();
    assert!(left.is_empty() || left == ["lock"], "{left:?}");
}

#[test]
fn after_any_fault_the_machine_is_as_before_or_as_planned_or_the_difference_is_reported() {
    let references: Vec<Vec<Reference>> = (0..MACHINES.len())
        .map(|machine| (0..3).map(|plan| Reference::new(machine, plan)).collect())
        .collect();
    let mut ends = Ends::default();
    let seeds = run_seeds(SEEDS, "quietwire-host", "apply::tests::faults", |seed| {
        let trail = RefCell::default();
        let judged = catch_unwind(AssertUnwindSafe(|| {
            run(seed, &references, &mut ends, &trail);
        }));
        if let Err(panic) = judged {
            eprintln!("{:#?}", trail.borrow());
            resume_unwind(panic);
        }
    });
    println!("{seeds} seeds: {ends:?}");
    if seeds >= SEEDS {
        let Ends {
            complete,
            reported,
            refused,
            killed,
        } = ends;
        let least = complete.min(reported).min(refused).min(killed);
        assert!(least > seeds / 20, "{ends:?}");
    }
}

/// Applies the plan with refused operations on one file, and returns the result with the machine.
fn apply_without(machine: &Machine, file: &'static str) -> Result<ApplyReport, ApplyError> {
    let refused = Some(Injected::Refused(Errno::EIO));
    let faults = Faults::new(When::OnFile(file), refused, Random::new(0));
    let applied = machine.process(&faults, |target| apply(target, &plan(), None));
    assert!(!faults.happened().is_empty());
    applied.unwrap()
}

#[test]
fn a_setting_that_cannot_be_read_is_no_missing_one() {
    let machine = machine(0, 0);
    let before = machine.settings();
    let report = apply_without(&machine, "scaling_governor").unwrap();
    let failed: Vec<&Applied> = report
        .applied
        .iter()
        .filter(|one| one.outcome != Outcome::Done)
        .collect();
    assert_eq!(report.failures(), 1, "{failed:?}");
    assert!(
        failed[0]
            .difference
            .place
            .ends_with("cpufreq/scaling_governor")
    );
    roll_back(&machine.target(), false).unwrap();
    assert_eq!(machine.settings(), before);
}

#[test]
fn nothing_is_undone_for_a_plan_whose_files_cannot_be_read() {
    for file in [
        "resctrl/schemata",
        "proc/irq",
        "self/mounts",
        "sys/class/net",
    ] {
        let machine = machine(0, 1);
        let former = machine.settings();
        let error = apply_without(&machine, file).unwrap_err();
        assert!(
            matches!(&error, ApplyError::Unreadable { path, .. } if path.ends_with(file)),
            "{error}"
        );
        assert_eq!(machine.settings(), former);
        let refused = Some(Injected::Refused(Errno::EIO));
        let faults = Faults::new(When::OnFile(file), refused, Random::new(0));
        let found = machine.process(&faults, |target| differences(target, &plan()));
        found.unwrap().unwrap_err();
    }
}

#[test]
fn a_refused_operation_at_any_step_leaves_what_rollback_restores() {
    let machine = machine(0, 0);
    let before = machine.settings();
    for at in 0..Reference::new(0, 0).operations[0] {
        let refused = Some(Injected::Refused(Errno::EIO));
        let faults = Faults::new(When::Once(at), refused, Random::new(0));
        drop(machine.process(&faults, |target| apply(target, &plan(), None)));
        let happened = faults.happened();
        for (change, outcome) in roll_back(&machine.target(), false).unwrap() {
            assert!(!outcome.is_left(), "{happened:?}: {change}: {outcome}");
        }
        assert_eq!(machine.settings(), before, "{happened:?}");
        assert_eq!(happened.len(), 1);
    }
}

#[test]
fn a_stop_with_a_refused_operation_reports_every_change_that_is_left() {
    for number in [0, 2] {
        let machine = machine(number, 0);
        let before = machine.settings();
        for at in 0.. {
            let refused = Some(Injected::Refused(Errno::EIO));
            let faults = Faults::new(When::Once(at), refused, Random::new(0));
            let (stop, watcher) = stop_at(10);
            let applied = machine.process(&faults, |target| {
                apply_until(target, &plan(), Some(watcher), &stop)
            });
            let happened = faults.happened();
            if let Ok(report) = applied.unwrap() {
                let stopped = report.stopped.unwrap();
                let left = stopped.rolled_back.iter();
                let left = left.filter(|(_, outcome)| outcome.is_left());
                let places: Vec<PathBuf> = left.flat_map(|(change, _)| places_of(change)).collect();
                machine.assert_reported(&machine.settings(), &before, &places, &[]);
            }
            machine.assert_status_reports(&before);
            for (change, outcome) in roll_back(&machine.target(), false).unwrap() {
                assert!(!outcome.is_left(), "{happened:?}: {change}: {outcome}");
            }
            assert_eq!(machine.settings(), before, "{happened:?}");
            if happened.is_empty() {
                break;
            }
        }
    }
}

/// The kernel's files beside another program, which creates one of the directories just before the process does.
#[derive(Debug)]
struct Raced<'a> {
    kernel: &'a Kernel,
    /// Creations until then.
    left: Cell<u32>,
    created: RefCell<Option<PathBuf>>,
}

impl Files for Raced<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.kernel.read(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        self.kernel.write(path, text)
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None if self.created.borrow().is_none() => {
                self.kernel.make_directory(path)?;
                self.created.replace(Some(path.to_owned()));
            }
            None => {}
        }
        self.kernel.make_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.kernel.remove_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.kernel.list(path)
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        self.kernel.is_directory(path)
    }
}

#[test]
fn a_directory_that_another_program_creates_meanwhile_is_left_to_it() {
    let mut raced = 0;
    for number in 0..MACHINES.len() {
        for left in 0.. {
            let machine = machine(number, 0);
            let before = machine.settings();
            let files = Raced {
                kernel: &machine.kernel,
                left: Cell::new(left),
                created: RefCell::default(),
            };
            let target = Target {
                files: &files,
                ..machine.target()
            };
            let report = apply(&target, &plan(), None).unwrap();
            let Some(created) = files.created.borrow().clone() else {
                assert_eq!(report.failures(), 0, "{report:?}");
                break;
            };
            raced += 1;
            let is_named = |one: &Applied| {
                one.difference.place == created && matches!(one.outcome, Outcome::Failed { .. })
            };
            assert!(report.applied.iter().any(is_named), "{report:?}");
            for (change, outcome) in roll_back(&machine.target(), false).unwrap() {
                assert!(!outcome.is_left(), "{change}: {outcome}");
            }
            assert!(
                machine.kernel.is_directory(&created).unwrap(),
                "{} is gone",
                created.display()
            );
            let mut after = machine.settings();
            after.retain(|path, _| !machine.root.path().join(path).starts_with(&created));
            assert_eq!(after, before);
        }
    }
    assert!(raced > MACHINES.len(), "{raced}");
}

#[test]
fn groups_with_processes_get_all_cpus_back_where_they_had_no_list() {
    let machine = Machine::new(1);
    let at = |file: &str| machine.root.path().join("sys/fs/cgroup").join(file);
    fs::write(at("cpuset.cpus.effective"), "0-3\n").unwrap();
    fs::write(at("system.slice/cgroup.procs"), "1\n").unwrap();
    let target = machine.target();
    let list = || fs::read_to_string(at("system.slice/cpuset.cpus")).unwrap();
    for _ in 0..2 {
        assert_eq!(apply(&target, &plan(), None).unwrap().failures(), 0);
        assert_eq!(list().trim(), "0");
        for (change, outcome) in roll_back(&target, false).unwrap() {
            assert!(!outcome.is_left(), "{change}: {outcome}");
        }
        assert_eq!(list().trim(), "0-3");
    }
    // A rollback that was killed has written them, and its journal still has the change.
    fs::write(at("system.slice/cpuset.cpus"), "\n").unwrap();
    assert_eq!(apply(&target, &plan(), None).unwrap().failures(), 0);
    assert_eq!(list().trim(), "0");
    fs::write(at("system.slice/cpuset.cpus"), "0-3\n").unwrap();
    for (change, outcome) in roll_back(&target, false).unwrap() {
        assert!(!outcome.is_left(), "{change}: {outcome}");
    }
    assert_eq!(list().trim(), "0-3");
    assert!(status(&target).unwrap().changes.is_empty());
}
