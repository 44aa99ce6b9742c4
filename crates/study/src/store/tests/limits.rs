// SPDX-License-Identifier: Apache-2.0
//! Stores whose content has no end, and files that are no stores: another user may have written them.

use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::super::limits::Limits;
use super::*;

/// Levels of pages, each with [`LINKS`] links: more rows than any program reads.
const LEVELS: usize = 8;
const LINKS: u16 = 100;

/// Returns an interior page of a table whose links all lead to one page ("Database File Format", section 1.6).
fn interior(page_size: usize, child: usize) -> Vec<u8> {
    const HEADER: usize = 12;
    const CELL: usize = 5;
    let child = u32::try_from(child).unwrap().to_be_bytes();
    let start = page_size - usize::from(LINKS) * CELL;
    let offset = |at: usize| u16::try_from(at).unwrap().to_be_bytes();
    let mut page = vec![0; page_size];
    page[0] = 5;
    page[3..5].copy_from_slice(&LINKS.to_be_bytes());
    page[5..7].copy_from_slice(&offset(start));
    page[8..12].copy_from_slice(&child);
    for link in 0..usize::from(LINKS) {
        let (pointer, cell) = (HEADER + 2 * link, start + CELL * link);
        page[pointer..pointer + 2].copy_from_slice(&offset(cell));
        page[cell..cell + 4].copy_from_slice(&child);
        page[cell + 4] = u8::try_from(link).unwrap();
    }
    page
}

/// Gives a table of one page levels of further pages. All links of a page lead to the same page, and those of the last level to the rows.
fn make_endless(path: &Path, table: &str) {
    let connection = Connection::open(path).unwrap();
    let number = |query: &str| {
        let number: i64 = connection.query_row(query, (), |row| row.get(0)).unwrap();
        usize::try_from(number).unwrap()
    };
    let root = number(&format!(
        "SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name = '{table}'"
    ));
    let page_size = number("PRAGMA page_size");
    drop(connection);
    let mut file = std::fs::read(path).unwrap();
    let pages = file.len() / page_size;
    let root = (root - 1) * page_size..root * page_size;
    let rows = file[root.clone()].to_vec();
    assert_eq!(rows[0], 13, "a leaf page of a table");
    file.extend(rows);
    for level in 0..LEVELS {
        file.extend(interior(page_size, pages + 1 + level));
    }
    file[root].copy_from_slice(&interior(page_size, pages + 1 + LEVELS));
    let pages = u32::try_from(file.len() / page_size).unwrap();
    file[28..32].copy_from_slice(&pages.to_be_bytes());
    std::fs::write(path, file).unwrap();
}

/// Returns a store with a run, whose table of runs has no end.
fn endless() -> (tempfile::TempDir, PathBuf) {
    let (directory, path) = scratch();
    let mut store = open(&path, OpenMode::New).unwrap();
    store.begin_run(&environment()).unwrap();
    drop(store);
    let sound = Store::open_to_read(&path).unwrap().results().unwrap();
    assert_eq!(sound.runs.len(), 1);
    make_endless(&path, "run");
    (directory, path)
}

#[test]
fn a_table_without_end_is_read_up_to_what_its_file_can_contain() {
    let (_directory, path) = endless();
    let too_long = |error: StoreError| {
        assert!(matches!(error, StoreError::TooLong(_)), "{error}");
        assert!(error.to_string().contains("store.sqlite"), "{error}");
    };
    let open = || Store::open_to_read(&path).unwrap();
    too_long(open().results().unwrap_err());
    too_long(open().overview().unwrap_err());
    // The budget is that of the store, not of a query.
    let store = open();
    too_long(store.results().unwrap_err());
    too_long(store.results().unwrap_err());
}

#[test]
fn a_query_without_rows_ends_after_its_steps_or_its_time() {
    let (_directory, path) = endless();
    let limits = Limits::of(&named(&path, ""));
    let start = Instant::now();
    for limits in [
        Limits {
            checks: 100,
            ..limits
        },
        Limits {
            time: Duration::from_millis(50),
            checks: u64::MAX,
            ..limits
        },
    ] {
        let store = Store::open_to_read_within(&path, &limits);
        let sum = store.and_then(|store| {
            store.ask(|connection| {
                let query = "SELECT sum(started_unix_ns % 2) FROM run";
                connection.query_row(query, (), |row| row.get::<_, i64>(0))
            })
        });
        let error = sum.unwrap_err();
        assert!(matches!(error, StoreError::TooLong(_)), "{error}");
    }
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_fifo_and_a_device_are_no_stores() {
    let (_directory, path) = scratch();
    mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    for path in [path.as_path(), Path::new("/dev/zero")] {
        let errors = [
            Store::open_to_read(path).unwrap_err(),
            open(path, OpenMode::New).unwrap_err(),
            open(path, OpenMode::Resume).unwrap_err(),
            Store::set_aside(path).unwrap_err(),
        ];
        for error in errors {
            let text = error.to_string();
            assert!(text.contains("it is not a regular file"), "{text}");
        }
    }
}
