// SPDX-License-Identifier: Apache-2.0
//! Tests that undoing restores the original state in all cases.

use std::fs;

use proptest::prelude::*;
use quietwire_base::crc32c;
use quietwire_base::fuzz::{check, planted};

use super::*;
use crate::settings;
use crate::threads;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_was_written_and_wherever_it_was_cut_off_all_is_restored(
        writes in prop::collection::vec((0usize..4, 0u32..5), 1..12),
        cut in any::<prop::sample::Index>(),
        last_was_made in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let files: Vec<PathBuf> = (0..4).map(|file| directory.path().join(format!("setting{file}"))).collect();
        let hold = |file: usize| fs::read_to_string(&files[file]).unwrap();
        for (index, file) in files.iter().enumerate() {
            fs::write(file, format!("{}\n", index + 10)).unwrap();
        }
        let before: Vec<String> = (0..4).map(hold).collect();
        let path = directory.path().join("journal");
        let mut journal = Journal::open(&path).unwrap();
        for (file, value) in &writes {
            settings::write(&mut journal, &files[*file], &value.to_string()).unwrap();
        }
        // The process was killed when the journal had this many octets. Changes of complete lines were made, except perhaps the last.
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..cut.index(whole.len() + 1)]).unwrap();
        let changes = read(&path).unwrap();
        for (file, text) in files.iter().zip(&before) {
            fs::write(file, text).unwrap();
        }
        let made = changes.len().saturating_sub(usize::from(!last_was_made));
        for change in &changes[..made] {
            let Change::FileWritten { path, new, .. } = change else { unreachable!() };
            fs::write(path, new).unwrap();
        }
        for round in 0..2 {
            for (change, outcome) in undo(&changes) {
                prop_assert!(matches!(outcome, UndoOutcome::Restored | UndoOutcome::AlreadyGone), "{} {:?} {:?}", round, change, outcome);
                prop_assert!(round == 0 || outcome == UndoOutcome::AlreadyGone);
            }
            let after: Vec<String> = (0..4).map(hold).collect();
            prop_assert_eq!(&after, &before);
        }
    }
}

#[test]
fn a_directory_of_another_program_is_in_no_journal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (own, others) = (
        directory.path().join("own"),
        directory.path().join("others"),
    );
    let created = |path: &Path| Change::GroupCreated {
        path: path.to_owned(),
    };
    let mut journal = Journal::open(&path).unwrap();
    // A set that another program has removed since, and creates again before this one does.
    for set in [&own, &others] {
        journal
            .create(&created(set), || fs::create_dir(set))
            .unwrap();
    }
    let error = journal.create(&created(&others), || fs::create_dir(&others));
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(read(&path).unwrap(), [created(&own)]);
    // Any other error leaves its line: the directory may exist.
    let error = journal.create(
        &created(&others),
        || Err(io::ErrorKind::ResourceBusy.into()),
    );
    error.unwrap_err();
    assert_eq!(read(&path).unwrap(), [created(&own), created(&others)]);
}

#[test]
fn a_process_is_ended_only_when_it_is_the_one_that_was_started() {
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let process = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
    let started = |start_time| Change::ProcessStarted {
        process: ProcessId {
            start_time,
            ..process
        },
        command: "sleep 60".to_owned(),
    };
    // Another process has the same PID now.
    let outcomes = undo(&[started(process.start_time + 1)]);
    assert_eq!(outcomes[0].1, UndoOutcome::AlreadyGone);
    // A process of an earlier boot had the same PID and start time.
    let text = serde_json::to_string(&started(process.start_time)).unwrap();
    let boot = process.boot.unwrap().to_string();
    let earlier = text.replace(&boot, "6a3d8d1e6b3f4d7e9a520d2b4f3c1a00");
    assert_ne!(text, earlier);
    let outcomes = undo(&[serde_json::from_str(&earlier).unwrap()]);
    assert_eq!(outcomes[0].1, UndoOutcome::AlreadyGone);
    assert!(process.is_alive());
    let outcomes = undo(&[started(process.start_time)]);
    assert_eq!(outcomes[0].1, UndoOutcome::Restored);
    assert!(!process.is_alive());
    child.wait().unwrap();
}

#[test]
fn tasks_get_their_former_cpus_back() {
    let online = threads::online_cpus(Path::new("/")).unwrap();
    assert!(online.len() > 1, "this test requires 2 CPUs");
    let first = online.first().unwrap();
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let task = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
    let cpus: CpuList = [first].into_iter().collect();
    let changes = [Change::AffinitiesNoted {
        tasks: vec![TaskAffinity {
            task,
            cpus: cpus.clone(),
        }],
    }];
    threads::set_affinity(task.pid, &online).unwrap();
    for wanted in [UndoOutcome::Restored, UndoOutcome::AlreadyGone] {
        assert_eq!(undo(&changes)[0].1, wanted);
        let now = threads::allowed_cpus(Path::new("/"), task.pid);
        assert_eq!(now.as_ref(), Some(&cpus));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(undo(&changes)[0].1, UndoOutcome::AlreadyGone);
}

#[test]
fn a_worker_that_the_kernel_has_bound_since_needs_no_undoing() {
    let online = threads::online_cpus(Path::new("/")).unwrap();
    assert!(online.len() > 1, "this test requires 2 CPUs");
    let bound = crate::tasks::all(Path::new("/"))
        .into_iter()
        .find(|task| task.is_kernel && task.is_bound(Path::new("/")) && task.cpus != online)
        .expect("each CPU has kernel threads of its own");
    let task = ProcessId::of(bound.tid).unwrap();
    assert!(threads::set_affinity(task.pid, &online).is_err());
    let set = Change::AffinitiesSet {
        tasks: vec![TaskChange {
            task,
            former: online.clone(),
            new: bound.cpus.clone(),
        }],
    };
    let noted = Change::AffinitiesNoted {
        tasks: vec![TaskAffinity { task, cpus: online }],
    };
    for change in [set, noted] {
        assert_eq!(undo(&[change])[0].1, UndoOutcome::AlreadyGone);
    }
}

#[test]
fn settings_changed_by_another_program_are_not_rolled_back() {
    let directory = tempfile::tempdir().unwrap();
    let setting = directory.path().join("setting");
    fs::write(&setting, "1\n").unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::open(&path).unwrap();
    settings::write(&mut journal, &setting, "2").unwrap();
    fs::write(&setting, "3\n").unwrap();
    let outcomes = undo(&read(&path).unwrap());
    assert!(
        matches!(outcomes[0].1, UndoOutcome::ChangedSince(_)),
        "{outcomes:?}"
    );
    assert_eq!(fs::read_to_string(&setting).unwrap(), "3\n");
}

#[test]
fn a_journal_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let journal = Journal::open(&path).unwrap();
    assert_eq!(
        fs::metadata(journal.path()).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn a_namespace_whose_maker_was_killed_between_is_undone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("namespace");
    let change = Change::NamespaceCreated { path: path.clone() };
    assert_eq!(
        undo(std::slice::from_ref(&change))[0].1,
        UndoOutcome::AlreadyGone
    );
    // The file was created, but nothing is mounted on it yet.
    fs::write(&path, "").unwrap();
    assert_eq!(
        undo(std::slice::from_ref(&change))[0].1,
        UndoOutcome::Restored
    );
    assert!(!path.exists());
}

#[test]
fn a_prepared_device_is_restored_by_its_command() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("restored");
    let restored_by = |script: &str, timeout_ms| {
        let words = ["sh", "-c", script, "sh", path.to_str().unwrap()];
        let change = Change::DevicePrepared {
            restore: words.map(str::to_owned).to_vec(),
            timeout_ms,
        };
        undo(&[change]).remove(0).1
    };
    let failed = |script: &str, timeout_ms| match restored_by(script, timeout_ms) {
        UndoOutcome::Failed(reason) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        restored_by("echo x > \"$1\"", 60_000),
        UndoOutcome::Restored
    );
    assert!(path.exists());
    let reason = failed("echo no such card; exit 3", 60_000);
    assert!(
        reason.contains("exit status: 3") && reason.ends_with("no such card"),
        "{reason}"
    );
    let reason = failed("sleep 600", 1);
    assert!(reason.contains("did not end within 0.001 s"), "{reason}");
    // A program that does not exist is not "already gone".
    let change = Change::DevicePrepared {
        restore: vec!["/nonexistent/restore".to_owned()],
        timeout_ms: 60_000,
    };
    let outcome = undo(&[change]).remove(0).1;
    assert!(
        matches!(&outcome, UndoOutcome::Failed(reason) if reason.contains("cannot be run")),
        "{outcome:?}"
    );
}

/// Parses any octets as a journal, and each of their lines as the object of a line with a checksum. What is accepted is the same after it
/// was written.
fn fuzz_journal(octets: &[u8]) -> bool {
    let old = line::parse::<Change>(octets);
    assert!(old.whole <= octets.len());
    let (mut sealed, mut count) = (Vec::new(), 0);
    for object in octets.split(|octet| *octet == b'\n') {
        let covered = [format!("{} ", object.len()).as_bytes(), object].concat();
        sealed.extend(format!("{:08x} ", crc32c(&covered)).into_bytes());
        sealed.extend(covered);
        sealed.push(b'\n');
        count += 1;
    }
    let new = line::parse::<Change>(&sealed);
    assert_eq!((new.changes.len(), new.whole), (count, sealed.len()));
    let changes = old.changes.iter().chain(&new.changes);
    let intact: Vec<&Change> = changes
        .filter(|change| !matches!(change, Change::Unreadable { .. }))
        .collect();
    for change in &intact {
        assert!(!change.to_string().is_empty());
        let again = line::parse::<Change>(&line::encode(change).unwrap());
        assert_eq!(again.changes, [(*change).clone()]);
        planted("host-journal", || match change {
            Change::AffinitiesSet { tasks } => tasks.iter().any(|task| task.task.pid > 1_000_000),
            _ => false,
        });
    }
    !intact.is_empty()
}

#[test]
fn fuzz_journals() {
    check(env!("CARGO_MANIFEST_DIR"), "host-journal", fuzz_journal);
}
