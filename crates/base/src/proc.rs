// SPDX-License-Identifier: Apache-2.0
//! The formats of `/proc/PID/stat`, `/proc/PID/status`, `/proc/cpuinfo`, `/proc/locks` and `/proc/sys/kernel/osrelease`, each parsed here only
//! (proc_pid_stat(5), proc_pid_status(5), proc_locks(5)).

// Text from outside: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::fs;
use std::io;
use std::path::Path;

/// Reads a file below `/proc`. A thread's name may contain any octets (prctl(2), PR_SET_NAME): octets that are not UTF-8 become U+FFFD.
///
/// # Errors
/// As [`fs::read`].
pub fn read(path: &Path) -> io::Result<String> {
    fs::read(path).map(|octets| match String::from_utf8(octets) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// PF_KTHREAD of the kernel's include/linux/sched.h.
const KERNEL_THREAD: u64 = 0x0020_0000;
/// PF_NO_SETAFFINITY of the same file.
const NO_SET_AFFINITY: u64 = 0x0400_0000;

/// Fields of `stat` after the name, from 0.
const FLAGS: usize = 6;
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const START_TIME: usize = 19;
const CPU: usize = 36;

/// `/proc/PID/stat` of a process, or `/proc/PID/task/TID/stat` of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// The name, at most 15 octets.
    pub name: &'a str,
    /// All fields after the name.
    fields: &'a str,
}

impl<'a> Stat<'a> {
    /// Splits the name from the other fields; `None` for a text without a name in parentheses.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        // The name may contain parentheses, spaces and newlines: it ends at the last closing parenthesis.
        let (head, fields) = text.rsplit_once(')')?;
        let (_, name) = head.split_once('(')?;
        Some(Self { name, fields })
    }

    fn number(&self, at: usize) -> Option<u64> {
        self.fields.split_whitespace().nth(at)?.parse().ok()
    }

    fn has_flag(&self, flag: u64) -> bool {
        self.number(FLAGS).is_some_and(|flags| flags & flag != 0)
    }

    /// Returns true for a zombie and for a dead thread. A process whose main thread has ended is a zombie as well, and holds its
    /// files until its other threads have ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.fields.trim_start().starts_with(['Z', 'X', 'x'])
    }

    /// Returns true for a thread of the kernel (PF_KTHREAD).
    #[must_use]
    pub fn is_kernel_thread(&self) -> bool {
        self.has_flag(KERNEL_THREAD)
    }

    /// Returns true for a thread whose CPUs only the kernel chooses (PF_NO_SETAFFINITY), such as a worker of its work queues.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.has_flag(NO_SET_AFFINITY)
    }

    /// Returns the time spent in user space, clock ticks.
    #[must_use]
    pub fn user_ticks(&self) -> Option<u64> {
        self.number(USER_TICKS)
    }

    /// Returns the time spent in the kernel, clock ticks.
    #[must_use]
    pub fn system_ticks(&self) -> Option<u64> {
        self.number(SYSTEM_TICKS)
    }

    /// Returns the time of the start, clock ticks since boot.
    #[must_use]
    pub fn start_time(&self) -> Option<u64> {
        self.number(START_TIME)
    }

    /// Returns the number of the CPU on which the thread last ran.
    #[must_use]
    pub fn cpu(&self) -> Option<u32> {
        self.number(CPU)?.try_into().ok()
    }
}

/// `/proc/PID/status` of a process, or `/proc/PID/task/TID/status` of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status<'a>(&'a str);

impl<'a> Status<'a> {
    /// Wraps the text of the file.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// Returns the value of the line `KEY:<tab>VALUE`. No name can forge a line: the kernel escapes newlines in it.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&'a str> {
        let value = |line: &'a str| line.strip_prefix(key)?.strip_prefix(':');
        self.0.lines().find_map(value).map(str::trim)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.field(key)?.parse().ok()
    }

    /// Returns the name as `stat` has it: `status` writes a newline as `\n` and a backslash as `\\` (fs/proc/array.c).
    #[must_use]
    pub fn name(&self) -> Option<String> {
        // Not trimmed as other fields are: a name may end in spaces.
        let value = |line: &'a str| line.strip_prefix("Name:\t");
        let escaped = self.0.lines().find_map(value)?;
        let mut name = String::with_capacity(escaped.len());
        let mut letters = escaped.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => match letters.next() {
                    Some('n') => name.push('\n'),
                    Some(other) => name.push(other),
                    None => name.push('\\'),
                },
                other => name.push(other),
            }
        }
        Some(name)
    }

    /// Returns true for a zombie and for a dead thread.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.field("State")
            .is_some_and(|state| state.starts_with(['Z', 'X', 'x']))
    }

    /// Returns true for a thread of the kernel. Linux before 6.8 has no field `Kthread`; there, a thread without memory is a thread of the
    /// kernel.
    #[must_use]
    pub fn is_kernel_thread(&self) -> bool {
        match self.field("Kthread") {
            Some(value) => value == "1",
            None => self.field("VmSize").is_none(),
        }
    }

    /// Returns the list of CPUs that the thread may use, in the kernel's format: `0-3,8`.
    #[must_use]
    pub fn allowed_cpus(&self) -> Option<&'a str> {
        self.field("Cpus_allowed_list")
    }

    /// Returns the number of voluntary context switches: the thread slept.
    #[must_use]
    pub fn voluntary_switches(&self) -> Option<u64> {
        self.number("voluntary_ctxt_switches")
    }

    /// Returns the number of involuntary context switches: another thread ran instead.
    #[must_use]
    pub fn involuntary_switches(&self) -> Option<u64> {
        self.number("nonvoluntary_ctxt_switches")
    }

    /// Returns the effective user id.
    #[must_use]
    pub fn effective_user(&self) -> Option<u32> {
        self.field("Uid")?.split_whitespace().nth(1)?.parse().ok()
    }

    /// Returns the mask of ignored signals; signal 1 is the lowest bit.
    #[must_use]
    pub fn ignored_signals(&self) -> Option<u64> {
        u64::from_str_radix(self.field("SigIgn")?, 16).ok()
    }

    /// Returns the mask of effective capabilities (capabilities(7)).
    #[must_use]
    pub fn effective_capabilities(&self) -> Option<u64> {
        u64::from_str_radix(self.field("CapEff")?, 16).ok()
    }
}

/// Returns the release of the running kernel (uname(2)), such as `6.1.0-18-cloud-amd64`; empty if `/proc` is not readable.
#[must_use]
pub fn kernel_release() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

/// Returns the first two numbers of a kernel's release.
#[must_use]
pub fn release_numbers(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns the value of the first line `KEY : VALUE` of the text of `/proc/cpuinfo`.
#[must_use]
pub fn cpuinfo_field<'a>(cpuinfo: &'a str, key: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then_some(value.trim())
    })
}

/// Returns the process that has an exclusive flock(2) on the file with this inode number, from the text of `/proc/locks`. `None` if no
/// process has one, or if files of two file systems have that number.
#[must_use]
pub fn flock_owner(locks: &str, inode: u64) -> Option<i32> {
    let mut owner = None;
    for line in locks.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // `->` is in the second field of a process that waits for the lock.
        let [_, "FLOCK", _, "WRITE", pid, place, ..] = fields[..] else {
            continue;
        };
        let number = place
            .rsplit(':')
            .next()
            .and_then(|number| number.parse().ok());
        // A process of another process namespace has number 0 or a negative one here.
        let pid = pid.parse().ok().filter(|pid| *pid > 0);
        if number == Some(inode) {
            match (owner, pid) {
                (None, Some(_)) => owner = pid,
                _ if owner == pid => {}
                _ => return None,
            }
        }
    }
    owner
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz::{check, planted};

    /// Fields after the name: a thread of the kernel, bound to its CPU.
    const FIELDS: &str = "S 2 0 0 0 -1 69238848 0 0 0 0 13 17 0 0 20 0 1 0 4711 0 0 18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 5 0 0 0";

    #[test]
    fn releases_of_kernels_are_compared_by_their_numbers() {
        assert_eq!(release_numbers("6.12.48+deb13-amd64"), Some((6, 12)));
        assert_eq!(release_numbers("6.5\n"), Some((6, 5)));
        assert_eq!(release_numbers("6"), None);
        assert_eq!(release_numbers("linux-6.5"), None);
        assert!(release_numbers("6.12.0") > release_numbers("6.5.0"));
        assert!(release_numbers(&kernel_release()).is_some());
    }

    #[test]
    fn names_of_processes_may_contain_any_character() {
        for name in ["sh", "a) S 1 (b", "(((", ")))", "two words", "a\nZ 1 2", ""] {
            let text = format!("7 ({name}) {FIELDS}\n");
            let stat = Stat::parse(&text).unwrap();
            assert_eq!(stat.name, name);
            assert!(!stat.has_ended() && stat.is_kernel_thread() && stat.is_bound());
            assert_eq!(
                (stat.user_ticks(), stat.system_ticks()),
                (Some(13), Some(17))
            );
            assert_eq!((stat.start_time(), stat.cpu()), (Some(4711), Some(5)));
        }
    }

    #[test]
    fn a_text_that_was_cut_off_has_no_numbers() {
        assert_eq!(Stat::parse(""), None);
        assert_eq!(Stat::parse("7 (sh"), None);
        assert_eq!(Stat::parse("7 sh) S"), None);
        let stat = Stat::parse("7 (sh) Z 1").unwrap();
        assert!(stat.has_ended() && !stat.is_kernel_thread());
        assert_eq!((stat.start_time(), stat.cpu()), (None, None));
    }

    #[test]
    fn a_name_forges_no_line_of_status() {
        let text = "Name:\ta\\nUid:\\t7\\\\\nUmask:\t0022\nState:\tS (sleeping)\nUid:\t1\t2\t3\t4\nVmSize:\t 1 kB\nSigIgn:\t0000000000001000\nCapEff:\t000001ffffffffff\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\n";
        let status = Status::new(text);
        assert_eq!(status.name().unwrap(), "a\nUid:t7\\");
        assert_eq!(status.effective_user(), Some(2));
        assert_eq!(status.allowed_cpus(), Some("0-7"));
        assert_eq!(status.effective_capabilities(), Some(0x1ff_ffff_ffff));
        assert_eq!(status.ignored_signals(), Some(0x1000));
        assert_eq!(status.voluntary_switches(), Some(5));
        assert_eq!(status.involuntary_switches(), Some(7));
        assert!(!status.has_ended() && !status.is_kernel_thread());
        assert_eq!(Status::new("").name(), None);
        assert!(Status::new("State:\tZ (zombie)\n").has_ended());
        assert!(Status::new("Kthread:\t1\nVmSize:\t1 kB\n").is_kernel_thread());
        assert!(!Status::new("Kthread:\t0\n").is_kernel_thread());
        assert!(Status::new("State:\tI (idle)\n").is_kernel_thread());
    }

    #[test]
    fn a_field_of_the_first_processor_is_found() {
        let text = "processor\t: 0\nmodel name\t: A: B\nflags : x\n\nprocessor\t: 1\n";
        assert_eq!(cpuinfo_field(text, "model name"), Some("A: B"));
        assert_eq!(cpuinfo_field(text, "processor"), Some("0"));
        assert_eq!(cpuinfo_field(text, "model"), None);
    }

    #[test]
    fn the_owner_of_a_lock_is_found_by_the_inode() {
        let locks = "1: FLOCK  ADVISORY  WRITE 8496 fe:00:77 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 9 fe:00:77 0 EOF\n2: POSIX  ADVISORY  WRITE 10 fe:00:77 0 EOF\n3: FLOCK  ADVISORY  READ 11 fe:00:78 0 EOF\n4: FLOCK  ADVISORY  WRITE 0 fe:00:79 0 EOF\n5: FLOCK  ADVISORY  WRITE 1 fe:00:80 0 EOF\n6: FLOCK  ADVISORY  WRITE 2 fe:01:80 0 EOF\n";
        let owners = [77, 78, 79, 80, 81].map(|inode| flock_owner(locks, inode));
        assert_eq!(owners, [Some(8496), None, None, None, None]);
    }

    #[test]
    fn the_running_thread_is_understood() {
        let text = read(Path::new("/proc/thread-self/stat")).unwrap();
        let stat = Stat::parse(&text).unwrap();
        assert!(stat.start_time().is_some() && stat.cpu().is_some() && !stat.has_ended());
        assert!(!stat.is_kernel_thread());
        let text = read(Path::new("/proc/thread-self/status")).unwrap();
        let status = Status::new(&text);
        assert_eq!(status.name().as_deref(), Some(stat.name));
        assert!(status.allowed_cpus().is_some() && status.effective_user().is_some());
        assert!(status.voluntary_switches().is_some() && !status.is_kernel_thread());
    }

    /// Parses any octets as files of /proc: a name is part of the text, and the parsers end.
    fn fuzz_proc(octets: &[u8]) -> bool {
        let text = String::from_utf8_lossy(octets);
        let status = Status::new(&text);
        let name = status.name();
        let numbers = [status.ignored_signals(), status.effective_capabilities()];
        let has_status = name.is_some() || numbers != [None, None] || status.has_ended();
        let owner = flock_owner(&text, 77);
        assert!(owner.is_none_or(|pid| pid > 0));
        let model = cpuinfo_field(&text, "model name");
        assert!(model.is_none_or(|model| text.contains(model) && model.trim() == model));
        let stat = Stat::parse(&text);
        if let Some(stat) = stat {
            assert!(text.contains(&format!("({})", stat.name)));
            planted("base-proc", || {
                stat.cpu() > Some(200) && stat.name.contains(')') && stat.is_kernel_thread()
            });
        }
        has_status
            || owner.is_some()
            || model.is_some()
            || stat.is_some_and(|stat| stat.cpu().is_some())
    }

    #[test]
    fn proc() {
        check(env!("CARGO_MANIFEST_DIR"), "base-proc", fuzz_proc);
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC*[)(]?.*", octets in prop::collection::vec(any::<u8>(), 0..64)) {
            let lossy = String::from_utf8_lossy(&octets);
            for text in [text.as_str(), &lossy] {
                if let Some(stat) = Stat::parse(text) {
                    let _ = (stat.cpu(), stat.start_time(), stat.is_bound(), stat.has_ended());
                }
                let status = Status::new(text);
                let _ = (status.name(), status.effective_user(), status.allowed_cpus());
                let _ = flock_owner(text, 1);
            }
        }

        #[test]
        fn every_name_is_read_back(name in "[^\0]{0,15}") {
            let text = format!("7 ({name}) {FIELDS}");
            prop_assert_eq!(Stat::parse(&text).unwrap().name, name.as_str());
            let escaped = name.replace('\\', "\\\\").replace('\n', "\\n");
            // str::lines() drops a carriage return before a newline.
            prop_assume!(!name.ends_with('\r'));
            let text = format!("Name:\t{escaped}\nState:\tS\n");
            prop_assert_eq!(Status::new(&text).name().unwrap(), name);
        }
    }
}
