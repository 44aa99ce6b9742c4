// SPDX-License-Identifier: Apache-2.0
//! Tests of journals on a disk that fails: writes that are cut short, kills at every octet, damaged octets.

use std::fs;
use std::sync::{Arc, Mutex};

use super::*;

/// A file that fails, as a full disk does.
#[derive(Clone, Default)]
struct FailingMedium(Arc<Mutex<Disk>>);

#[derive(Default)]
struct Disk {
    contents: Vec<u8>,
    /// Octets that fit; any number if `None`.
    space: Option<usize>,
    sync_fails: bool,
    truncate_fails: bool,
}

impl FailingMedium {
    fn disk(&self) -> std::sync::MutexGuard<'_, Disk> {
        self.0.lock().unwrap()
    }

    fn changes(&self) -> Vec<Change> {
        line::parse(&self.disk().contents).changes
    }
}

impl OpenFile for FailingMedium {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk().contents.len() as u64)
    }

    fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        let mut disk = self.disk();
        let space = disk.space.unwrap_or(usize::MAX);
        let fitting = octets.len().min(space - space.min(disk.contents.len()));
        disk.contents.extend(&octets[..fitting]);
        if fitting < octets.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut disk = self.disk();
        if disk.truncate_fails {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        disk.contents.truncate(usize::try_from(length).unwrap());
        Ok(())
    }

    fn set_permissions(&mut self, _: fs::Permissions) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.disk().sync_fails {
            return Err(io::ErrorKind::Other.into());
        }
        Ok(())
    }
}

fn written(number: usize) -> Change {
    Change::FileWritten {
        path: PathBuf::from(format!("/proc/irq/{number}/smp_affinity_list")),
        former: format!("0-{number}\n"),
        new: "0".to_owned(),
    }
}

fn changes(count: usize) -> Vec<Change> {
    (0..count).map(written).collect()
}

/// Returns a journal of these changes, and where each of its lines ends.
fn journal_of(changes: &[Change]) -> (Vec<u8>, Vec<usize>) {
    let mut text = Vec::new();
    let mut ends = Vec::new();
    for change in changes {
        text.extend(line::encode(change).unwrap());
        ends.push(text.len());
    }
    (text, ends)
}

fn is_unreadable(change: &Change) -> bool {
    matches!(change, Change::Unreadable { .. })
}

#[test]
fn a_write_that_is_cut_short_at_any_octet_leaves_a_readable_journal() {
    let all = changes(3);
    let (text, ends) = journal_of(&all);
    for space in 0..text.len() {
        let medium = FailingMedium::default();
        let mut journal = Journal::on(Box::new(medium.clone()), Path::new("/run/journal"));
        medium.disk().space = Some(space);
        let fitting = ends.iter().filter(|end| **end <= space).count();
        for (index, change) in all.iter().enumerate() {
            let recorded = journal.record(change);
            assert_eq!(
                recorded.is_ok(),
                index < fitting,
                "space for {space} octets"
            );
            if let Err(error) = recorded {
                assert_eq!(error.kind(), io::ErrorKind::StorageFull);
                assert!(error.to_string().contains("/run/journal"), "{error}");
                break;
            }
        }
        assert_eq!(medium.changes(), all[..fitting], "space for {space} octets");
        // There is space again: the next change is recorded behind the last whole one.
        medium.disk().space = None;
        journal.record(&written(99)).unwrap();
        let expected: Vec<Change> = all[..fitting]
            .iter()
            .cloned()
            .chain([written(99)])
            .collect();
        assert_eq!(medium.changes(), expected, "space for {space} octets");
    }
}

#[test]
fn a_change_that_did_not_reach_the_disk_is_not_recorded() {
    let medium = FailingMedium::default();
    let mut journal = Journal::on(Box::new(medium.clone()), Path::new("/run/journal"));
    journal.record(&written(0)).unwrap();
    medium.disk().sync_fails = true;
    journal.record(&written(1)).unwrap_err();
    assert_eq!(medium.changes(), [written(0)]);
    // Removing the line did not reach the disk either: after a power failure, the line may be there.
    medium.disk().sync_fails = false;
    let error = journal.record(&written(2)).unwrap_err().to_string();
    assert!(error.contains("no more changes"), "{error}");
}

#[test]
fn nothing_is_written_behind_a_part_of_a_line_that_cannot_be_removed() {
    let medium = FailingMedium::default();
    let mut journal = Journal::on(Box::new(medium.clone()), Path::new("/run/journal"));
    journal.record(&written(0)).unwrap();
    medium.disk().truncate_fails = true;
    let space = medium.disk().contents.len() + 10;
    medium.disk().space = Some(space);
    journal.record(&written(1)).unwrap_err();
    medium.disk().space = None;
    for _ in 0..2 {
        let error = journal.record(&written(2)).unwrap_err().to_string();
        assert!(error.contains("no more changes"), "{error}");
    }
    assert_eq!(medium.disk().contents.len(), space);
    assert_eq!(medium.changes(), [written(0)]);
}

#[test]
fn a_journal_that_was_cut_at_any_octet_is_read_and_gone_on_with() {
    let all = changes(3);
    let (text, ends) = journal_of(&all);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    for cut in 0..=text.len() {
        fs::write(&path, &text[..cut]).unwrap();
        // A line that lacks only its newline is whole.
        let whole = ends.iter().filter(|end| **end - 1 <= cut).count();
        assert_eq!(read(&path).unwrap(), all[..whole], "cut at {cut}");
        let mut journal = Journal::open(&path).unwrap();
        journal.record(&written(99)).unwrap();
        let expected: Vec<Change> = all[..whole].iter().cloned().chain([written(99)]).collect();
        assert_eq!(read(&path).unwrap(), expected, "cut at {cut}");
    }
}

#[test]
fn a_damaged_octet_costs_its_own_line_only_and_is_reported() {
    let all = changes(4);
    let (text, ends) = journal_of(&all);
    for at in 0..text.len() {
        for damage in [
            1,
            2,
            4,
            8,
            16,
            32,
            64,
            128,
            255,
            text[at] ^ b'\n',
            text[at] ^ b'{',
        ] {
            let mut text = text.clone();
            text[at] ^= damage;
            let found: Vec<Change> = line::parse(&text).changes;
            let (lost, kept): (Vec<Change>, Vec<Change>) =
                found.into_iter().partition(is_unreadable);
            let line = ends.iter().filter(|end| **end <= at).count();
            let mut others = all.clone();
            let damaged = others.remove(line);
            if kept == all {
                // A damaged newline, another case of a hexadecimal digit, or a newline just before the first object.
                continue;
            }
            assert_eq!(kept, others, "octet {at} ^ {damage}: {damaged:?}");
            assert!(!lost.is_empty(), "octet {at} ^ {damage}");
            assert!(
                matches!(&lost[0], Change::Unreadable { line: number, .. } if *number == line + 1),
                "octet {at} ^ {damage}: {lost:?}"
            );
        }
    }
}

#[test]
fn several_damaged_octets_never_make_another_change() {
    use proptest::prelude::*;
    let all = changes(4);
    let (text, _) = journal_of(&all);
    proptest!(ProptestConfig::with_cases(512), |(
        damages in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..6),
        cut in any::<prop::sample::Index>(),
    )| {
        let mut text = text.clone();
        for (at, damage) in damages {
            let at = at.index(text.len());
            text[at] ^= damage;
            // Would make a line of an earlier version out of the first one, which has no checksum.
            prop_assume!(text[at] != b'\n');
        }
        text.truncate(cut.index(text.len() + 1));
        let parsed = line::parse::<Change>(&text);
        prop_assert!(parsed.whole <= text.len());
        for change in parsed.changes {
            prop_assert!(is_unreadable(&change) || all.contains(&change), "{:?}", change);
        }
    });
}

#[test]
fn journals_of_earlier_versions_are_read() {
    let all = changes(3);
    let lines: Vec<String> = all
        .iter()
        .map(|change| serde_json::to_string(change).unwrap() + "\n")
        .collect();
    let read = |text: &str| -> Vec<Change> { line::parse(text.as_bytes()).changes };
    let whole = lines.concat();
    assert_eq!(read(&whole), all);
    // The process was killed while it wrote the last line.
    assert_eq!(read(&whole[..whole.len() - 5]), all[..2]);
    // The disk was full for the second line, and had space again for the third.
    let cut = format!("{}{}{}", lines[0], &lines[1][..40], lines[2]);
    let found = read(&cut);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!((&found[0], &found[2]), (&all[0], &all[2]));
    assert!(
        matches!(&found[1], Change::Unreadable { line: 2, text } if text == &lines[1][..40]),
        "{found:?}"
    );
    // A damaged newline.
    assert_eq!(read(&whole.replacen("}\n", "}\x0b", 1)), all);
    // This version goes on with it.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    fs::write(&path, &cut).unwrap();
    Journal::open(&path).unwrap().record(&written(9)).unwrap();
    let found = super::read(&path).unwrap();
    assert_eq!((found.len(), &found[3]), (4, &written(9)));
}

#[test]
fn a_change_that_this_version_does_not_know_is_reported() {
    let object = r#"{"change":"moon-moved","path":"/"}"#;
    let covered = format!("{} {object}", object.len());
    let crc = quietwire_base::crc32c(covered.as_bytes());
    let text = format!("{crc:08x} {covered}\n");
    let found: Vec<Change> = line::parse(text.as_bytes()).changes;
    assert!(
        matches!(&found[..], [Change::Unreadable { line: 1, text }] if text == object),
        "{found:?}"
    );
}

#[test]
fn damaged_lines_are_skipped_and_everything_else_is_undone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let files: Vec<PathBuf> = (0..3)
        .map(|file| directory.path().join(format!("setting{file}")))
        .collect();
    let mut journal = Journal::open(&path).unwrap();
    for file in &files {
        fs::write(file, "1\n").unwrap();
        crate::settings::write(&mut journal, file, "2").unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("setting1", "setting7")).unwrap();
    let outcomes = undo(&read(&path).unwrap());
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    assert_eq!(texts.collect::<Vec<_>>(), ["1\n", "2", "1\n"]);
    let left: Vec<&(Change, UndoOutcome)> = outcomes
        .iter()
        .filter(|(_, outcome)| outcome.is_left())
        .collect();
    assert!(
        matches!(&left[..], [(Change::Unreadable { line: 2, text }, UndoOutcome::Unreadable(_))] if text.contains("setting7")),
        "{left:?}"
    );
}

#[test]
fn damaged_journals_are_kept_beside_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    fs::write(&path, "nonsense\n").unwrap();
    let to = directory.path().join("journal.damaged");
    let names: Vec<PathBuf> = (0..3).map(|_| keep_damaged(&path, &to).unwrap()).collect();
    let expected = ["journal.damaged", "journal.damaged.2", "journal.damaged.3"];
    assert_eq!(names, expected.map(|name| directory.path().join(name)));
    assert!(path.exists());
}

#[test]
fn devices_and_files_without_end_are_no_journals() {
    let directory = tempfile::tempdir().unwrap();
    let huge = directory.path().join("huge");
    fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    for path in [Path::new("/dev/zero"), &huge] {
        let opened = Journal::open(path).unwrap_err().to_string();
        let read = read(path).unwrap_err().to_string();
        for error in [opened, read] {
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
    }
}
