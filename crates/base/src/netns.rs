// SPDX-License-Identifier: Apache-2.0
//! Network namespaces (network_namespaces(7)), entered by a thread that ends with its task.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, setns};

/// Failed step of opening an interface, with the error.
pub type Failure = (&'static str, Errno);

/// Directory of named namespaces (ip-netns(8)).
const NAMED: &str = "/run/netns";
/// Directories of files of namespaces: ip-netns(8) and container runtimes that use it, and Docker.
const DIRECTORIES: [&str; 2] = [NAMED, "/run/docker/netns"];
/// Most files that a search reads.
const FILES_MAX: usize = 1 << 16;

/// Returns the file of a namespace that is given by its name or by an absolute path.
fn path(namespace: &str) -> PathBuf {
    // An absolute path replaces the directory.
    Path::new(NAMED).join(namespace)
}

/// Opens the file of a namespace that is given by its name or by an absolute path.
///
/// # Errors
/// A message that contains the file and the remedy.
pub fn open(namespace: &str) -> Result<File, String> {
    let path = path(namespace);
    let cause = |error: io::Error| {
        let path = path.display();
        format!("{path}: {error} (create it with `ip netns add`)")
    };
    open_file(&path).map_err(cause)
}

fn open_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    // A FIFO would block its reader until another process writes. setns(2) refuses it.
    options.read(true).custom_flags(libc::O_NONBLOCK);
    options.open(path)
}

/// Reason why no network namespace is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// All namespaces that have a name or a process are others.
    Absent,
    /// This process may not open some of them. To open that of a process requires its user and its capabilities (ptrace(2),
    /// `PTRACE_MODE_READ_FSCREDS`).
    Denied,
}

/// Returns the first network namespace that is wanted, of those that have a name and those of processes. `is_wanted` gets each of them
/// once, with its number (the inode of its file).
///
/// # Errors
/// [`NotFound`].
pub fn find(mut is_wanted: impl FnMut(&File, u64) -> bool) -> Result<File, NotFound> {
    // All files of namespaces are in one file system.
    let own = fs::metadata("/proc/self/ns/net");
    let device = own.map_err(|error| reason(&error))?.dev();
    let of_processes = entries(Path::new("/proc")).filter(|path| is_of_a_process(path));
    let of_processes = of_processes.map(|path| path.join("ns/net"));
    let named = DIRECTORIES.into_iter().map(Path::new).flat_map(entries);
    let mut known = BTreeSet::new();
    let mut missing = NotFound::Absent;
    for path in named.chain(of_processes).take(FILES_MAX) {
        match open_new(&path, device, &known) {
            Ok(Some((file, number))) => {
                known.insert(number);
                if is_wanted(&file, number) {
                    return Ok(file);
                }
            }
            Ok(None) => {}
            // Another reason is that the process has ended.
            Err(error) if reason(&error) == NotFound::Denied => missing = NotFound::Denied,
            Err(_) => {}
        }
    }
    Err(missing)
}

/// Opens the file of a namespace, unless it is known or no namespace.
fn open_new(path: &Path, device: u64, known: &BTreeSet<u64>) -> io::Result<Option<(File, u64)>> {
    let is_new = |meta: &fs::Metadata| meta.dev() == device && !known.contains(&meta.ino());
    if !is_new(&fs::metadata(path)?) {
        return Ok(None);
    }
    let file = open_file(path)?;
    // Another file may have the name by now.
    let opened = file.metadata()?;
    Ok(is_new(&opened).then(|| (file, opened.ino())))
}

fn reason(error: &io::Error) -> NotFound {
    match error.kind() {
        io::ErrorKind::PermissionDenied => NotFound::Denied,
        _ => NotFound::Absent,
    }
}

/// Returns the paths in a directory. A directory that cannot be read has none.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

fn is_of_a_process(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.bytes().all(|octet| octet.is_ascii_digit()))
}

/// Runs a task in a network namespace, or in that of the caller.
///
/// # Errors
/// The error of the task, or the kernel's: the file is not a namespace, or the process lacks CAP_SYS_ADMIN.
pub fn within<T: Send>(
    namespace: Option<impl AsFd>,
    task: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    match &namespace {
        Some(namespace) => enter(namespace.as_fd(), task),
        None => task(),
    }
}

fn enter<T: Send>(
    namespace: BorrowedFd<'_>,
    task: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    let entered = || {
        setns(namespace, CloneFlags::CLONE_NEWNET).map_err(|error| ("setns", error))?;
        task()
    };
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("qw-netns".to_owned());
        let thread = builder.spawn_scoped(scope, entered).map_err(|error| {
            let error = error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw);
            ("starting a thread", error)
        })?;
        thread.join().unwrap_or(Err(("a thread", Errno::EIO)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> u64 {
        std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino()
    }

    #[test]
    fn names_and_paths_lead_to_files() {
        assert_eq!(path("blue"), Path::new("/run/netns/blue"));
        assert_eq!(path("/proc/1/ns/net"), Path::new("/proc/1/ns/net"));
        assert!(open("/proc/self/ns/net").is_ok());
        let error = open("quietwire-none").unwrap_err();
        for part in ["/run/netns/quietwire-none: ", "ip netns add"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_fifo_is_refused_as_namespace_without_blocking() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let file = open(fifo.to_str().unwrap()).unwrap();
        let error = within(Some(&file), || Ok(())).unwrap_err();
        assert_eq!(error, ("setns", Errno::EINVAL));
    }

    #[test]
    fn a_namespace_is_found_by_its_number_and_each_is_found_once() {
        let number = own();
        let found = find(|_, other| other == number).unwrap();
        assert_eq!(found.metadata().unwrap().ino(), number);
        let mut known = Vec::new();
        let all = find(|file, number| {
            assert_eq!(file.metadata().unwrap().ino(), number);
            known.push(number);
            false
        });
        assert!(all.is_err());
        assert_eq!(known.iter().filter(|other| **other == number).count(), 1);
        assert!(is_of_a_process(Path::new("/proc/12")));
        assert!(!is_of_a_process(Path::new("/proc/self")));
    }

    #[test]
    fn a_namespace_that_may_not_be_opened_is_not_absent() {
        let denied = io::Error::from(Errno::EACCES);
        assert_eq!(reason(&denied), NotFound::Denied);
        let ended = io::Error::from(Errno::ENOENT);
        assert_eq!(reason(&ended), NotFound::Absent);
    }

    #[test]
    fn the_caller_stays_in_its_namespace() {
        let before = own();
        let other = thread::spawn(|| {
            nix::sched::unshare(CloneFlags::CLONE_NEWNET).expect("requires root");
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        let other = other.join().unwrap();
        let observed = within(Some(&other), || Ok(own())).unwrap();
        assert_eq!(observed, other.metadata().unwrap().ino());
        assert_ne!(observed, before);
        assert_eq!(within(None::<File>, || Ok(own())).unwrap(), before);
        assert_eq!(own(), before);
        let file = File::open("/dev/null").unwrap();
        let error = within(Some(&file), || Ok(())).unwrap_err();
        assert_eq!(error, ("setns", Errno::EINVAL));
    }
}
