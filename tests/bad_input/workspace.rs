// SPDX-License-Identifier: Apache-2.0
//! A directory for invalid input, and the state of the machine that must not change.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(120);

/// The checked state is that of the whole machine: a test that changes it runs alone, and tests that only check it run at the same time.
static MACHINE: RwLock<()> = RwLock::new(());

/// Short, and with little load: the measured values do not matter.
pub(crate) const STUDY: &str = r#"
name = "test"
title = "A test"
rounds = 4
[device]
switch = "quietwire"
topology = "vNet1"
link = "memif"
forwarding-cpus = "1"
service-cpus = "0"
control-cpus = "0"
[tester]
cpu = "0"
huge-pages-mib = 32
[trials]
duration-s = 0.05
warm-up-s = 0
drain-s = 0.02
max-rate-pps = 100_000
invalid-repeats = 0
[sweep]
loads-percent = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
[neighbours]
stressors = ["--cpu 1"]
[[case]]
name = "noisy-pinned"
neighbours = "off-forwarding-cpus"
isolation = "pinned"
"#;

/// Directory in which DPDK keeps the files of its processes.
const DPDK: &str = "/run/dpdk";

/// Machine state that commands change and must restore.
#[derive(Debug, PartialEq)]
pub(crate) struct Machine {
    realtime: String,
    huge_pages: String,
    cpusets: Vec<PathBuf>,
    run: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

/// Returns the entries of a directory, sorted; none if the directory does not exist.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

pub(crate) struct Workspace {
    directory: TempDir,
    started: AtomicU32,
    _alone: Option<RwLockWriteGuard<'static, ()>>,
    _unchanged: Option<RwLockReadGuard<'static, ()>>,
}

/// Result of a command that has ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) printed: String,
}

impl Workspace {
    /// Returns a directory for commands that change the machine.
    pub(crate) fn new() -> Self {
        let alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        Self::of(Some(alone), None)
    }

    /// Returns a directory for commands that do not change the machine, not even for a time. No other test changes it meanwhile.
    pub(crate) fn unchanged() -> Self {
        let unchanged = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        Self::of(None, Some(unchanged))
    }

    /// Returns a directory for a command that neither changes the machine nor depends on its state: other tests may run meanwhile.
    pub(crate) fn beside_others() -> Self {
        Self::of(None, None)
    }

    fn of(
        alone: Option<RwLockWriteGuard<'static, ()>>,
        unchanged: Option<RwLockReadGuard<'static, ()>>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Also for other users than root.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let workspace = Self {
            directory,
            started: AtomicU32::new(0),
            _alone: alone,
            _unchanged: unchanged,
        };
        fs::write(workspace.path("study.toml"), STUDY).unwrap();
        // The lock is never removed, so it must exist before.
        fs::create_dir(workspace.path("lab")).unwrap();
        fs::write(workspace.path("lab/lock"), "").unwrap();
        workspace
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the path as text, for arguments.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn machine(&self) -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mut mounts = entries(Path::new("/sys/fs/cgroup"));
        mounts.push("/sys/fs/cgroup".into());
        // Unit tests, which run at the same time, have sets of their own.
        let ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("quietwire") && !name.starts_with("quietwire-test-")
        };
        let cpusets = mounts.iter().flat_map(|mount| entries(mount)).filter(ours);
        Machine {
            realtime: read("/proc/sys/kernel/sched_rt_runtime_us"),
            huge_pages: read("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"),
            cpusets: cpusets.collect(),
            run: entries(Path::new("/run/quietwire")),
            files: self.files(),
        }
    }

    /// Returns the files of the directory and of the lab's state, without what commands have printed.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files = entries(self.directory.path());
        files.extend(entries(&self.path("lab")));
        files.retain(|path| path.extension().is_none_or(|ending| ending != "said"));
        files
    }

    pub(crate) fn quietwire(&self, arguments: &[&str]) -> Command {
        self.command(env!("CARGO_BIN_EXE_quietwire"), arguments)
    }

    /// Returns a command in the directory: relative paths in its arguments start there.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.directory.path())
            // No calibration of the machine's owner: a message about it would be a second one.
            .env("XDG_STATE_HOME", self.path("state-home"));
        command
    }

    /// Returns `quietwire switch run` with a private control socket and little memory.
    pub(crate) fn switch(&self, arguments: &[&str]) -> Command {
        self.switch_at("control.sock", arguments)
    }

    /// Returns the same with this control socket, for switches that run at the same time.
    pub(crate) fn switch_at(&self, socket: &str, arguments: &[&str]) -> Command {
        let mut command = self.quietwire(&["switch", "run", "--control-socket"]);
        command.arg(self.path(socket));
        if !arguments.contains(&"--memory-mib") {
            command.args(["--memory-mib", "64"]);
        }
        if !arguments.contains(&"--idle") {
            // The CPU is left to other tests.
            command.args(["--idle", "sleep"]);
        }
        command.args(["--huge-pages", "never"]).args(arguments);
        command
    }

    /// Returns `quietwire generate` with little memory.
    pub(crate) fn generate(&self, arguments: &[&str]) -> Command {
        let mut command = self.quietwire(&["generate", "--no-huge", "--isolation", "none"]);
        if !arguments.contains(&"--memory-mib") {
            command.args(["--memory-mib", "64"]);
        }
        command.args(arguments);
        command
    }

    /// Returns `quietwire study run study.toml` with a private state directory.
    pub(crate) fn study(&self, arguments: &[&str]) -> Command {
        let mut command = self.quietwire(&["study", "run", "study.toml", "--state-directory"]);
        command.arg(self.path("lab")).args(arguments);
        command
    }

    pub(crate) fn start(&self, mut command: Command) -> Running {
        command.stdout(Stdio::null());
        self.start_with_output(command)
    }

    /// Starts a command whose standard output is set already.
    pub(crate) fn start_with_output(&self, mut command: Command) -> Running {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let path = self.path(&format!("{number}.said"));
        let log = File::create(&path).unwrap();
        command.stdin(Stdio::null()).stderr(log);
        let dpdk = entries(Path::new(DPDK));
        Running {
            child: command.spawn().unwrap(),
            log: path,
            dpdk,
        }
    }

    /// Runs a command to its end; returns its standard error.
    pub(crate) fn run(&self, command: Command) -> Ended {
        self.start(command).ended()
    }

    /// Checks that a command ends with `code`, prints one message with all of `parts`, and leaves nothing behind.
    pub(crate) fn refused(&self, code: i32, command: Command, parts: &[&str]) {
        let before = self.machine();
        let shown = self.is_refused(code, command, parts);
        assert_eq!(self.machine(), before, "{shown} left something behind");
    }

    /// Checks the same of commands that run at the same time, a few at once. All together leave nothing behind.
    pub(crate) fn refused_at_once(&self, code: i32, commands: Vec<(Command, Vec<&str>)>) {
        const AT_ONCE: usize = 6;
        let before = self.machine();
        let commands = Mutex::new(commands.into_iter());
        // The lock is not held while a command runs.
        let next = || {
            let mut left = commands.lock().unwrap_or_else(PoisonError::into_inner);
            left.next()
        };
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some((command, parts)) = next() {
                        self.is_refused(code, command, &parts);
                    }
                });
            }
        });
        assert_eq!(self.machine(), before, "a command left something behind");
    }

    /// Checks that a command ends with `code` and prints one message with all of `parts`; returns the command as text.
    fn is_refused(&self, code: i32, command: Command, parts: &[&str]) -> String {
        let shown = format!("{command:?}");
        let Ended {
            code: ended,
            printed,
        } = self.run(command);
        assert_eq!(ended, Some(code), "{shown}: {printed}");
        assert_one_message(&shown, &printed);
        for part in parts {
            assert!(printed.contains(part), "{shown}: no '{part}' in: {printed}");
        }
        shown
    }
}

/// Checks for one message: a line of quietwire's, or clap's, which adds the usage.
fn assert_one_message(shown: &str, printed: &str) {
    let lines: Vec<&str> = printed.lines().collect();
    let is_of_clap = lines
        .first()
        .is_some_and(|line| line.starts_with("error: "));
    if is_of_clap {
        let errors = lines.iter().filter(|line| line.starts_with("error"));
        assert_eq!(errors.count(), 1, "{shown}: {printed}");
    } else {
        assert_eq!(lines.len(), 1, "{shown}: {printed}");
        assert!(printed.starts_with("quietwire: "), "{shown}: {printed}");
    }
    assert!(!printed.contains("panicked"), "{shown}: {printed}");
}

/// A running command; killed with this value if it still runs.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
    /// Directories of DPDK before. One that a killed process has left may have the number of this process.
    dpdk: Vec<PathBuf>,
}

impl Running {
    pub(crate) fn printed(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a condition while the command runs.
    pub(crate) fn until(&mut self, what: &str, mut look: impl FnMut() -> bool) {
        let began = Instant::now();
        while !look() {
            let status = self.child.try_wait().unwrap();
            assert_eq!(status, None, "ended before: {what}: {}", self.printed());
            assert!(began.elapsed() < DEADLINE, "{what}: {}", self.printed());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns true if the process has a thread with this name.
    pub(crate) fn has_thread(id: u32, name: &str) -> bool {
        let tasks = entries(Path::new(&format!("/proc/{id}/task")));
        let is_it = |task: &PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
        };
        tasks.iter().any(is_it)
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let mut kill = Command::new("kill");
        kill.args([&format!("-{signal}"), &id]);
        assert!(kill.status().unwrap().success());
    }

    fn wait(&mut self, deadline: Duration) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                began.elapsed() < deadline,
                "does not end within {deadline:?}: {}",
                self.printed()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end within this time. A command that is ended by force may leave files of DPDK, which its next start removes.
    pub(crate) fn ended_within(mut self, deadline: Duration) -> Ended {
        let code = self.wait(deadline).code();
        Ended {
            code,
            printed: self.printed(),
        }
    }

    /// Waits for the end, after which no files of DPDK remain for this process either.
    pub(crate) fn ended(mut self) -> Ended {
        let code = self.wait(DEADLINE).code();
        let own = format!("-{}", self.id());
        let is_own =
            |path: &PathBuf| path.to_string_lossy().ends_with(&own) && !self.dpdk.contains(path);
        let left: Vec<_> = entries(Path::new(DPDK))
            .into_iter()
            .filter(is_own)
            .collect();
        assert!(left.is_empty(), "{left:?}");
        Ended {
            code,
            printed: self.printed(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
