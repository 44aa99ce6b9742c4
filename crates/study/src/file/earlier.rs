// SPDX-License-Identifier: Apache-2.0
//! Keys that `isolation` of a case has replaced: `pinning` and `partition`. Study files with them are refused, texts in stores are read.

use std::path::Path;

use toml::{Table, Value};

use super::locate::At::{Index, Key};
use super::locate::{FileError, LocatedFault, of_fault};
use super::study_file::StudyFile;
use super::values::EarlierIsolation;

const PINNING: &str = "pinning";
const PARTITION: &str = "partition";

/// Returns the error for the first replaced key of a text; `None` if the text has none.
pub(super) fn refusal(text: &str, path: &Path) -> Option<FileError> {
    let table: Table = toml::from_str(text).ok()?;
    let cases = table.get("case")?.as_array()?;
    let (index, case, key) = cases.iter().enumerate().find_map(|(index, case)| {
        let case = case.as_table()?;
        let mut keys = [PINNING, PARTITION].into_iter();
        Some((index, case, keys.find(|key| case.contains_key(*key))?))
    })?;
    let cure = match isolation_of(case) {
        _ if case.contains_key("isolation") => "remove this key".to_owned(),
        Some(isolation) => format!("write isolation = \"{}\"", case_name(isolation)),
        None => "write isolation = \"none\", for example".to_owned(),
    };
    let fault = LocatedFault {
        path: vec![Key("case"), Index(index), Key(key)],
        message: format!("'{key}' is now 'isolation' ({cure})"),
    };
    Some(of_fault(text, path, fault))
}

/// Parses a stored text with replaced keys; `None` if it has none, or is not a study in another respect.
pub(super) fn stored(text: &str) -> Option<StudyFile> {
    let mut table: Table = toml::from_str(text).ok()?;
    let cases = table.get_mut("case")?.as_array_mut()?;
    let isolations: Vec<_> = cases.iter_mut().map(take).collect();
    let mut file: StudyFile = table.try_into().ok()?;
    for (case, isolation) in file.cases.iter_mut().zip(isolations) {
        case.earlier_isolation = isolation;
    }
    Some(file)
}

/// Removes the replaced keys from a case, and returns their meaning.
fn take(case: &mut Value) -> Option<EarlierIsolation> {
    let case = case.as_table_mut()?;
    let isolation = isolation_of(case)?;
    case.remove(PINNING);
    case.remove(PARTITION);
    Some(isolation)
}

/// Returns the meaning of the replaced keys of a case; `None` if it has none, or a value is unknown.
fn isolation_of(case: &Table) -> Option<EarlierIsolation> {
    let (pinning, partition) = (case.get(PINNING), case.get(PARTITION));
    if pinning.is_none() && partition.is_none() {
        return None;
    }
    Some(EarlierIsolation {
        is_pinned: match pinning.map(Value::as_str) {
            None | Some(Some("none")) => false,
            Some(Some("roles")) => true,
            Some(_) => return None,
        },
        keeps_others_off: partition.map_or(Some(false), Value::as_bool)?,
    })
}

/// Returns the name of the isolation case that replaces these keys.
fn case_name(isolation: EarlierIsolation) -> &'static str {
    if isolation.keeps_others_off {
        "isolated"
    } else if isolation.is_pinned {
        "pinned"
    } else {
        "none"
    }
}
