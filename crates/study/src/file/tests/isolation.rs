// SPDX-License-Identifier: Apache-2.0
//! Isolation of cases, and the keys that it replaced.

use std::path::Path;

use super::{SMALL, parse};
use crate::file::{NeighboursIn, StudyFile};

/// Returns the small study with these isolation keys in its second case.
fn isolated(keys: &str) -> String {
    let plain = "name = \"noisy\"\nneighbours = \"everywhere\"\nisolation = \"none\"\n";
    assert_eq!(SMALL.matches(plain).count(), 1);
    SMALL.replace(plain, &format!("name = \"noisy\"\n{keys}\n"))
}

#[test]
fn faults_of_an_isolation_are_reported() {
    let noisy = "neighbours = \"everywhere\"";
    for (keys, key, says) in [
        (
            format!("{noisy}\nisolation = \"nonne\""),
            "isolation",
            "available: none, pinned, isolated",
        ),
        (
            format!("{noisy}\npinning = \"none\""),
            "pinning",
            "'pinning' is now 'isolation' (write isolation = \"none\")",
        ),
        (
            format!("{noisy}\npinning = \"roles\""),
            "pinning",
            "write isolation = \"pinned\"",
        ),
        (
            format!("{noisy}\npinning = \"roles\"\npartition = true"),
            "pinning",
            "write isolation = \"isolated\"",
        ),
        (
            format!("{noisy}\nisolation = \"isolated\"\npartition = true"),
            "partition",
            "'partition' is now 'isolation' (remove this key)",
        ),
        (
            format!("{noisy}\npinning = 1"),
            "pinning",
            "write isolation = \"none\", for example",
        ),
        (
            "neighbours = \"siblings\"\nisolation = \"sibling-idle\"".to_owned(),
            "neighbours",
            "keeps the sibling threads of the forwarding cores idle",
        ),
        (noisy.to_owned(), "name", "isolation = \"none\""),
    ] {
        let text = isolated(&keys);
        let message = parse(&text).unwrap_err().to_string();
        let case = text.find("name = \"noisy\"").unwrap();
        let at = case + text[case..].find(key).unwrap();
        let line = text[..at].matches('\n').count() + 1;
        let place = format!("a/study.toml:{line}:");
        assert!(message.starts_with(&place), "{message}\nis not at {place}");
        assert!(
            message.contains(&format!(": case[1].{key}: ")) && message.contains(says),
            "{message}"
        );
    }
}

#[test]
fn every_isolation_case_is_read() {
    for known in quietwire_lab::isolation_cases() {
        let keys = format!("neighbours = \"none\"\nisolation = \"{}\"", known.name);
        let case = parse(&isolated(&keys)).unwrap().cases.remove(1);
        assert_eq!(case.isolation(), Some(known));
        assert_eq!(case.is_pinned(), known.name != "none");
        assert_eq!(
            case.keeps_others_off(),
            !["none", "pinned"].contains(&known.name)
        );
    }
}

#[test]
fn stored_cases_with_replaced_keys_keep_their_meaning() {
    let stored = |text: &str| StudyFile::parse_stored(text, Path::new("a/store.sqlite"));
    for (keys, pinned, apart) in [
        ("pinning = \"none\"", false, false),
        ("pinning = \"roles\"", true, false),
        ("pinning = \"roles\"\npartition = true", true, true),
    ] {
        let keys = format!("neighbours = \"same-llc\"\n{keys}");
        let text = isolated(&keys);
        let mut file = stored(&text).unwrap();
        let case = file.cases.remove(1);
        assert_eq!((case.is_pinned(), case.keeps_others_off()), (pinned, apart));
        assert_eq!(case.isolation(), None);
        assert_eq!(case.neighbours, NeighboursIn::SameLlc);
        // All other keys are those of the file.
        let mut small = parse(SMALL).unwrap();
        small.cases.truncate(1);
        assert_eq!(file, small);
    }
    assert_eq!(stored(SMALL).unwrap(), parse(SMALL).unwrap());
    for keys in [
        "pinning = \"some\"",
        "pinning = \"roles\"\npartition = 1",
        "pinning = \"roles\"\ncolour = 1",
    ] {
        stored(&isolated(keys)).unwrap_err();
    }
}
