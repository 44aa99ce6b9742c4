// SPDX-License-Identifier: Apache-2.0
//! Migration of stores of earlier versions to the current schema.

use quietwire_tester::TrialResult;
use rusqlite::Transaction;

use super::error::of_sqlite;
use super::write::{packed_text, split_result};
use super::{Store, StoreError};
use crate::schema;

/// Error of SQLite or of the conversion.
enum Failure {
    Sqlite(rusqlite::Error),
    Store(StoreError),
    Damaged(String),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Store {
    /// Migrates from schema 2, in which histograms are part of the result text and the machine's activity is text; from
    /// schema 3, in which a maximum rate applies to all cases and there are no applications; from schema 4, which has no
    /// consoles; from schema 5, in which actions and the output of consoles have other names; from schema 6, which has no
    /// conditions of runs; and from schema 7, which has no courses of trials. The migration is atomic: if it fails, the store is
    /// unchanged.
    ///
    /// # Errors
    /// [`StoreError`]: no space, or the store is damaged.
    pub(super) fn migrate(&mut self, found: i64) -> Result<(), StoreError> {
        let path = &self.path;
        let mut run = || {
            let transaction = self.connection.transaction()?;
            if found < 3 {
                transaction.execute_batch(
                    "ALTER TABLE trial RENAME TO trial_2; ALTER TABLE deed RENAME TO deed_2;",
                )?;
                transaction.execute_batch(schema::CREATE_EVENTS)?;
                trials_from_2(&transaction)?;
                actions_from_2(&transaction)?;
                transaction.execute_batch("DROP TABLE trial_2; DROP TABLE deed_2;")?;
            }
            if found < 4 {
                rates_and_steps_from_3(&transaction)?;
            }
            if (3..6).contains(&found) {
                transaction.execute_batch("ALTER TABLE deed RENAME TO action;")?;
            }
            if found < 5 {
                transaction.execute_batch(schema::CREATE_CONSOLE)?;
            }
            if found == 5 {
                transaction
                    .execute_batch("ALTER TABLE console RENAME COLUMN said_zstd TO output_zstd;")?;
            }
            if found < 7 {
                transaction.execute_batch(schema::CREATE_IDENTITY)?;
            }
            transaction.execute_batch(schema::CREATE_SERIES)?;
            transaction.pragma_update(None, "user_version", schema::VERSION)?;
            transaction.commit()?;
            Ok(())
        };
        run().map_err(|failure| match failure {
            Failure::Sqlite(error) => of_sqlite(path, error),
            Failure::Store(error) => error,
            Failure::Damaged(reason) => StoreError::Damaged {
                path: path.clone(),
                reason,
            },
        })
    }
}

fn rates_and_steps_from_3(transaction: &Transaction<'_>) -> Result<(), Failure> {
    transaction.execute_batch("ALTER TABLE step ADD COLUMN application_json TEXT;")?;
    transaction.execute_batch("ALTER TABLE max_rate RENAME TO max_rate_3;")?;
    transaction.execute_batch(schema::CREATE_MAX_RATE)?;
    transaction.execute_batch(
        "INSERT INTO max_rate SELECT '', frame_size, max_rate_pps, origin FROM max_rate_3 ORDER BY rowid; \
         DROP TABLE max_rate_3;",
    )?;
    Ok(())
}

fn trials_from_2(transaction: &Transaction<'_>) -> Result<(), Failure> {
    let mut rows = transaction.prepare("SELECT id, result_json, activity_json FROM trial_2")?;
    let mut rows = rows.query(())?;
    let mut insert = transaction.prepare(
        "INSERT INTO trial SELECT id, step_id, sequence, run_id, stored_unix_ns, is_valid, offered_rate_pps, \
         forwarding_rate_pps, loss_ratio, request_json, ?2, ?3, ?4 FROM trial_2 WHERE id = ?1",
    )?;
    while let Some(row) = rows.next()? {
        let (id, result, activity): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let result: TrialResult = serde_json::from_str(&result)
            .map_err(|error| Failure::Damaged(format!("invalid result of a trial: {error}")))?;
        let (result, histograms) = split_result(&result)?;
        let activity = packed_text("the machine's activity", &activity)?;
        insert.execute((id, result, histograms, activity))?;
    }
    Ok(())
}

fn actions_from_2(transaction: &Transaction<'_>) -> Result<(), Failure> {
    let mut rows = transaction.prepare("SELECT id, activity_json FROM deed_2")?;
    let mut rows = rows.query(())?;
    let mut insert = transaction.prepare(
        "INSERT INTO action SELECT id, step_id, sequence, run_id, stored_unix_ns, action_json, observation_json, ?2 \
         FROM deed_2 WHERE id = ?1",
    )?;
    while let Some(row) = rows.next()? {
        let (id, activity): (i64, String) = (row.get(0)?, row.get(1)?);
        insert.execute((id, packed_text("the machine's activity", &activity)?))?;
    }
    Ok(())
}
