// SPDX-License-Identifier: Apache-2.0
//! Writes a page from simulated results: `cargo run -p quietwire-report --example simulated_page -- PAGE [STUDY]`.
//! No figure on it was measured.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use quietwire_study::simulated::SimulatedBench;
use quietwire_study::{OpenMode, Silent, Store, StudyFile, run_study};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let page = arguments.next().ok_or("give the path of the page")?;
    let study = arguments.next().map_or_else(ready_made, PathBuf::from);
    let (mut file, text) = StudyFile::read(&study)?;
    file.title = format!("SIMULATED, nothing was measured: {}", file.title);
    let text = text.replacen(
        "title = \"",
        "title = \"SIMULATED, nothing was measured: ",
        1,
    );

    let directory = tempfile::tempdir()?;
    let path = directory.path().join("store.sqlite");
    let mut store = Store::open(&path, &file, &text, OpenMode::New)?;
    let mut bench = SimulatedBench::new(11, 0);
    let stop = AtomicBool::new(false);
    run_study(&file, &mut store, &mut bench, &mut Silent, &stop)?;

    let results = store.results()?;
    quietwire_report::write_html(&results, Path::new(&page))?;
    let summary = quietwire_report::Summary::of(&results)?;
    println!("{}", quietwire_report::text_table(&summary, Some(120)));
    Ok(())
}

fn ready_made() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/noisy-neighbours.toml")
}
