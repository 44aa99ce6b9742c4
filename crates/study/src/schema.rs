// SPDX-License-Identifier: Apache-2.0
//! Tables of a store. Every change of a table requires a new [`VERSION`].

/// `PRAGMA user_version` of stores that this program writes.
pub(crate) const VERSION: i64 = 8;

/// Oldest version that this program reads.
pub(crate) const VERSION_MIN: i64 = 2;

/// `PRAGMA application_id`: "QWst". It distinguishes a store from other SQLite files, for `file` and for quietwire.
pub(crate) const APPLICATION_ID: i64 = 0x5157_7374;

/// Query of a table, of this or an earlier version, that is a view, a virtual table, or has a computed column; NULL in a sound store.
pub(crate) const NOT_A_TABLE: &str = "
SELECT min(known.name) FROM pragma_table_list AS known
WHERE known.name IN ('study', 'run', 'case_entry', 'step', 'max_rate', 'trial', 'action', 'deed', 'console', 'run_identity', 'trial_series')
AND (
    known.type <> 'table'
    OR EXISTS (SELECT 1 FROM pragma_table_xinfo(known.name) AS field WHERE field.hidden <> 0)
)
";

/// Tables of a new store, in addition to [`CREATE_MAX_RATE`], [`CREATE_EVENTS`], [`CREATE_INDEX`],
/// [`CREATE_CONSOLE`], [`CREATE_IDENTITY`] and [`CREATE_SERIES`].
pub(crate) const CREATE: &str = "
-- One row: what was to be done.
CREATE TABLE study (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    name TEXT NOT NULL,
    title TEXT NOT NULL,
    file_text TEXT NOT NULL,
    file_sha256 TEXT NOT NULL,
    started_unix_ns INTEGER NOT NULL
) STRICT;
-- One row for each time that the study was started or resumed.
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    started_unix_ns INTEGER NOT NULL,
    ended_unix_ns INTEGER,
    -- finished, interrupted or failed; nothing while it runs and after it was killed.
    how_ended TEXT,
    message TEXT,
    machine_json TEXT NOT NULL,
    versions_json TEXT NOT NULL
) STRICT;
-- One row for each time that a case was set up: every command and setting.
CREATE TABLE case_entry (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES run (id),
    round INTEGER NOT NULL,
    case_name TEXT NOT NULL,
    entered_unix_ns INTEGER NOT NULL,
    settings_json TEXT NOT NULL
) STRICT;
-- One row for each method of a case: a search, a sweep, trials for the latency, a procedure.
CREATE TABLE step (
    id INTEGER PRIMARY KEY,
    round INTEGER NOT NULL,
    case_name TEXT NOT NULL,
    frame_size TEXT NOT NULL,
    kind_json TEXT NOT NULL,
    is_finished INTEGER NOT NULL DEFAULT 0,
    -- What a search found; what a procedure found; what applications saw.
    findings_json TEXT,
    procedure_json TEXT,
    application_json TEXT,
    UNIQUE (round, case_name, frame_size, kind_json)
) STRICT;
";

/// Table of maximum rates, which differs from schema 4 on.
pub(crate) const CREATE_MAX_RATE: &str = "
-- What 100 % of the load is.
CREATE TABLE max_rate (
    -- The case that it was found in, and that it holds for with all of the same device and traffic; empty: for all cases.
    case_name TEXT NOT NULL,
    frame_size TEXT NOT NULL,
    max_rate_pps REAL NOT NULL,
    -- file: from the study file; calibrated: what the tester itself can do.
    origin TEXT NOT NULL,
    PRIMARY KEY (case_name, frame_size)
) STRICT;
";

/// Tables of trials and actions. They are separate because their large columns have another encoding from schema 3 on.
pub(crate) const CREATE_EVENTS: &str = "
-- One row for each finished trial, valid or not. The JSON is what counts; the columns beside it are for queries. The
-- result is without its histograms, which are beside it; what ends in _zstd is JSON that zstd made smaller.
CREATE TABLE trial (
    id INTEGER PRIMARY KEY,
    step_id INTEGER NOT NULL REFERENCES step (id),
    sequence INTEGER NOT NULL,
    run_id INTEGER NOT NULL REFERENCES run (id),
    stored_unix_ns INTEGER NOT NULL,
    is_valid INTEGER NOT NULL,
    offered_rate_pps REAL NOT NULL,
    forwarding_rate_pps REAL NOT NULL,
    loss_ratio REAL NOT NULL,
    request_json TEXT NOT NULL,
    result_json TEXT NOT NULL,
    histograms BLOB NOT NULL,
    activity_zstd BLOB NOT NULL,
    UNIQUE (step_id, sequence)
) STRICT;
-- One row for each thing that was done for a procedure: a burst, a restart, addresses learned.
CREATE TABLE action (
    id INTEGER PRIMARY KEY,
    step_id INTEGER NOT NULL REFERENCES step (id),
    sequence INTEGER NOT NULL,
    run_id INTEGER NOT NULL REFERENCES run (id),
    stored_unix_ns INTEGER NOT NULL,
    action_json TEXT NOT NULL,
    observation_json TEXT NOT NULL,
    activity_zstd BLOB NOT NULL,
    UNIQUE (step_id, sequence)
) STRICT;
";

/// Index of new stores. Stores without it give the same answers, but counting their trials reads all of them.
pub(crate) const CREATE_INDEX: &str = "
CREATE INDEX trial_of_run ON trial (run_id, is_valid);
";

/// Table of consoles, new in schema 5.
pub(crate) const CREATE_CONSOLE: &str = "
-- One row for each guest of a case, each time that the case was left: all that its console said.
CREATE TABLE console (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES run (id),
    round INTEGER NOT NULL,
    case_name TEXT NOT NULL,
    element TEXT NOT NULL,
    output_zstd BLOB NOT NULL
) STRICT;
";

/// Table of conditions, new in schema 7.
pub(crate) const CREATE_IDENTITY: &str = "
-- One row for each run: what its figures depend on, and what differed from the earlier runs if it was resumed nevertheless.
CREATE TABLE run_identity (
    run_id INTEGER PRIMARY KEY REFERENCES run (id),
    identity_json TEXT NOT NULL,
    differences_json TEXT NOT NULL
) STRICT;
";

/// Table of the courses of trials, new in schema 8. It is apart from the trials, so that rows of trials stay small.
pub(crate) const CREATE_SERIES: &str = "
-- At most one row for each trial: frames, latency and cycles over its time. The JSON has two lists of rows of numbers:
-- frames: end of the interval (seconds after the start of the counted part), offered and received frames, mean and
-- largest latency (ns, null without frames); device: end of the interval, cycles, frames.
CREATE TABLE trial_series (
    trial_id INTEGER PRIMARY KEY REFERENCES trial (id) ON DELETE CASCADE,
    series_zstd BLOB NOT NULL
) STRICT;
";
