// SPDX-License-Identifier: Apache-2.0
//! Live migration of a guest from one switch to another while frames are written into its memory.
//!
//! QEMU copies all of the guest's memory, and later once more each page that the guest's processor or the switch has written
//! to in the meantime. It knows of the switch's writes only from the log. The guest therefore leaves data in a socket: the
//! frames stay where the switch wrote them, in pages that were copied before and that the guest's processor does not touch,
//! until a program reads them after the migration.
//!
//! Whenever QEMU collects the written pages, the guest is stopped: QEMU 7.2 loses writes of an emulated processor that runs
//! meanwhile (also with QEMU's own devices), and guests do not survive that. The first copy is therefore held shortly before
//! its end, and traffic continues for that time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::machine::{Boot, Guest, Setup};
use crate::rig::alone;
use crate::sockets::noise;
use crate::switches::{DEADLINE, Namespace, Switch, run, until};

const MAC: &str = "52:54:00:10:09:02";
/// On this port the guest returns the MD5 of what it received, on request.
const KEEPING: u16 = 5001;
/// On this port the guest returns what it receives.
const ECHO: u16 = 5002;
/// A connection to this port makes the guest read the data in its socket.
const TELLING: u16 = 5003;

/// Octets that the guest keeps in its socket: size of a part, and number of parts.
const PART: usize = 512 << 10;
const PARTS: u64 = 4;
/// Octets of the guest's memory.
const MEMORY: u64 = 256 << 20;
/// The first copy: octets per second, until this many octets are left. Each rate leaves a second or more to notice that. QEMU copies the
/// firmware last, some hundred KiB, not the guest's memory.
const COPYING: [(u64, u64); 8] = [
    (32 << 20, 48 << 20),
    (24 << 20, 24 << 20),
    (12 << 20, 12 << 20),
    (6 << 20, 6 << 20),
    (3 << 20, 3 << 20),
    (1536 << 10, 1536 << 10),
    (1 << 20, 1 << 20),
    (256 << 10, 700 << 10),
];
/// Octets sent and returned at once.
const CHUNK: usize = 16 << 10;

/// The socket keeps all data in place: no larger window, no smaller buffers.
const SCRIPT: &str = r#"
echo '16777216 16777216 16777216' >/proc/sys/net/ipv4/tcp_rmem
cat >/bin/keep <<'END'
#!/bin/sh
until [ -e /told ]; do sleep 1; done
exec md5sum
END
chmod +x /bin/keep
nc -l -p 5001 -e /bin/keep &
nc -l -p 5002 -e cat &
(nc -l -p 5003 </dev/null >/dev/null; touch /told) &
echo GUEST READY
while :; do sleep 1000; done
"#;

/// QEMU's monitor, with the machine protocol (QMP).
struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    fn connect(socket: &Path) -> Self {
        let stream = until("QEMU listens", || UnixStream::connect(socket).ok());
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut monitor = Self {
            lines: BufReader::new(stream),
        };
        monitor.line();
        monitor.execute("qmp_capabilities", &json!({}));
        monitor
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "QEMU ended");
        serde_json::from_str(&line).unwrap()
    }

    /// Executes a command; returns the result.
    fn execute(&mut self, command: &str, arguments: &Value) -> Value {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.lines.get_mut(), "{request}").unwrap();
        loop {
            let mut answer = self.line();
            assert!(answer.get("error").is_none(), "{request}: {answer}");
            // Anything else is an event.
            if answer.get("return").is_some() {
                return answer["return"].take();
            }
        }
    }

    /// Limits a migration: octets per second, and the maximum downtime of the guest, milliseconds.
    fn set_limits(&mut self, bandwidth: u64, downtime_ms: u64) {
        let limits = json!({ "max-bandwidth": bandwidth, "downtime-limit": downtime_ms });
        self.execute("migrate-set-parameters", &limits);
    }

    fn migration(&mut self) -> Value {
        let migration = self.execute("query-migrate", &json!({}));
        assert_ne!(migration["status"], "failed", "{migration}");
        migration
    }

    /// Returns the number of collections of written pages, and the octets left to copy until the next one.
    fn progress(&mut self) -> (u64, u64) {
        let migration = self.migration();
        let number = |name: &str| migration["ram"][name].as_u64();
        let collections = number("dirty-sync-count").unwrap_or(0);
        (collections, number("remaining").unwrap_or(u64::MAX))
    }

    /// Waits until at most `octets` of the first copy are left.
    fn wait_until_left(&mut self, octets: u64) {
        until("memory is copied", || {
            let (collections, left) = self.progress();
            assert!(collections < 2, "the first copy has ended");
            (collections == 1 && left <= octets).then_some(())
        });
    }

    fn state(&mut self) -> String {
        let status = self.execute("query-status", &json!({}));
        status["status"].as_str().unwrap().to_owned()
    }
}

/// Sends data, receives them back and compares, in a thread that ends with this value.
struct Echo {
    is_over: Arc<AtomicBool>,
    octets: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(mut stream: TcpStream) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let octets = Arc::<AtomicU64>::default();
        let (ends, count) = (Arc::clone(&is_over), Arc::clone(&octets));
        let thread = std::thread::spawn(move || {
            let mut back = vec![0; CHUNK];
            for seed in 0.. {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let sent = noise(seed, CHUNK);
                stream.write_all(&sent).unwrap();
                stream.read_exact(&mut back).unwrap();
                assert!(sent == back, "chunk {seed} came back damaged");
                count.fetch_add(CHUNK as u64, Ordering::Relaxed);
            }
        });
        Self {
            is_over,
            octets,
            thread: Some(thread),
        }
    }

    /// Waits until this many more octets have returned.
    fn goes_on(&self, octets: u64) {
        let goal = self.octets.load(Ordering::Relaxed) + octets;
        until("data come back from the guest", || {
            let thread = self.thread.as_ref().unwrap();
            assert!(!thread.is_finished(), "the connection has failed");
            (self.octets.load(Ordering::Relaxed) >= goal).then_some(())
        });
    }

    fn end(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn connect(namespace: &Namespace, port: u16) -> TcpStream {
    let connect = move || TcpStream::connect(("10.9.0.2", port)).ok();
    let stream = until("the guest accepts a connection", || {
        namespace.within(connect).join().unwrap()
    });
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Waits until the guest has acknowledged all data sent to a port.
fn all_acknowledged(namespace: &Namespace, port: u16) {
    until("the guest acknowledges all", || {
        let mut command = namespace.command("ss");
        let shown = run(command.args(["-Htn", "dport", "=", &format!(":{port}")]));
        (shown.split_whitespace().nth(2).unwrap() == "0").then_some(())
    });
}

fn md5(octets: &[u8]) -> String {
    let mut child = Command::new("md5sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(octets).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

/// Returns the features that a switch's guest has negotiated.
fn features(switch: &Switch) -> Vec<String> {
    let port = switch.port("guest");
    let features = port["guest"]["features"].as_array();
    let features = features.into_iter().flatten();
    features
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

fn logs(switch: &Switch) -> bool {
    features(switch).iter().any(|name| name == "log-all")
}

/// Starts a switch with a tap port in the namespace's bridge and a vhost port.
fn switch(namespace: &Namespace, directory: &Path, tap: &str) -> Switch {
    std::fs::create_dir(directory).unwrap();
    let ports = [
        ("tap", format!("tap:{tap}")),
        (
            "guest",
            format!("vhost:{}", directory.join("v.sock").display()),
        ),
    ];
    let switch = Switch::start(namespace, directory, &ports, &["--bridge", "lan=tap,guest"]);
    namespace.ip(&["link", "set", "dev", tap, "up", "master", "br0"]);
    switch
}

#[test]
fn a_guest_moves_to_another_switch_under_traffic() {
    let _alone = alone();
    let namespace = Namespace::new("move");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    namespace.ip(&["link", "add", "br0", "type", "bridge"]);
    namespace.ip(&["address", "add", "10.9.0.1/24", "dev", "br0"]);
    namespace.ip(&["link", "set", "br0", "up"]);
    let [from, to] = ["a", "b"].map(|name| switch(&namespace, &path(name), name));

    let boot = Boot::make(directory.path(), SCRIPT);
    let guest = |name: &str, further: &[&str]| {
        let monitor = path(&format!("{name}.qmp"));
        let qmp = format!("unix:{},server=on,wait=off", monitor.display());
        let guest = Guest::start(&Setup {
            boot: &boot,
            directory: directory.path(),
            name: &format!("{name}.console"),
            socket: &path(name).join("v.sock"),
            // Buffers are offered, and copied, before frames are written to them.
            card: &format!(",mac={MAC},rx_queue_size=1024"),
            // Otherwise the kernel clears pages before it offers them to the switch, and QEMU would copy them because of
            // that.
            kernel_options: "init_on_alloc=0",
            arguments: &[&["-qmp", &qmp], further].concat(),
        });
        (guest, Monitor::connect(&monitor))
    };
    let incoming = format!("unix:{}", path("migration.sock").display());
    let (mut source, mut source_monitor) = guest("a", &[]);
    source.shows("GUEST READY");
    let (mut destination, mut destination_monitor) = guest("b", &["-incoming", &incoming]);
    let mut kept = connect(&namespace, KEEPING);
    let echo = Echo::start(connect(&namespace, ECHO));
    echo.goes_on(CHUNK as u64);
    let agreed = features(&from);
    assert!(agreed.iter().any(|name| name == "version-1"), "{agreed:?}");
    assert!(!logs(&from));

    source_monitor.execute("stop", &json!({}));
    source_monitor.set_limits(COPYING[0].0, 1);
    source_monitor.execute("migrate", &json!({ "uri": incoming }));
    source_monitor.wait_until_left(MEMORY);
    source_monitor.execute("cont", &json!({}));
    for (bandwidth, left) in COPYING {
        source_monitor.set_limits(bandwidth, 1);
        source_monitor.wait_until_left(left);
    }
    source_monitor.set_limits(10, 1);
    until("the switch logs its writes", || logs(&from).then_some(()));
    assert_eq!(destination_monitor.state(), "inmigrate");
    let mut sent = Vec::new();
    for seed in 0..PARTS {
        let part = noise(1000 + seed, PART);
        kept.write_all(&part).unwrap();
        sent.extend(part);
        all_acknowledged(&namespace, KEEPING);
        echo.goes_on(4 * CHUNK as u64);
    }
    let (collections, _) = source_monitor.progress();
    assert_eq!(collections, 1);
    assert!(logs(&from), "{}", from.port("guest"));

    // Some of these arrive before the guest is stopped.
    let last = noise(2000, PART);
    kept.write_all(&last).unwrap();
    sent.extend(last);
    source_monitor.execute("stop", &json!({}));
    source_monitor.set_limits(1 << 30, 2000);
    let migration = until("the migration completes", || {
        let migration = source_monitor.migration();
        (migration["status"] == "completed").then_some(migration)
    });
    until("the guest has arrived", || {
        (destination_monitor.state() == "paused").then_some(())
    });
    destination_monitor.execute("cont", &json!({}));
    source.runs();
    drop(source);
    until("the first switch has no guest", || {
        from.port("guest")["guest"].is_null().then_some(())
    });

    // The same guest continues at the other switch, which does not log.
    let before = to.port("guest");
    echo.goes_on(16 * CHUNK as u64);
    let after = to.port("guest");
    for count in ["rx_frames", "tx_frames"] {
        assert!(
            after[count].as_u64() > before[count].as_u64().map(|count| count + 20),
            "{before} {after}"
        );
    }
    assert_eq!(features(&to), agreed);
    let table = run(namespace
        .command("bridge")
        .args(["fdb", "show", "br", "br0"]));
    let at = |line: &str| line.starts_with(MAC) && line.contains("dev b ");
    assert!(table.lines().any(at), "{table}");

    // It also has the data that were written to its memory in the meantime.
    kept.shutdown(Shutdown::Write).unwrap();
    drop(connect(&namespace, TELLING));
    let mut heard = String::new();
    kept.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, md5(&sent), "{migration}");
    echo.end();
    destination.runs();
    drop(destination);
    assert_eq!([from, to].map(Switch::end), [Some(0), Some(0)]);
}
