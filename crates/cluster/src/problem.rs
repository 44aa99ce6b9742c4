// SPDX-License-Identifier: Apache-2.0
//! Problems of tasks that try again.

use std::fmt::Display;

/// Problem of a task that tries again. The log has it when it begins and when it becomes another one, not at each attempt.
#[derive(Debug, Default)]
pub(crate) struct Problem(String);

impl Problem {
    /// Notes the result of an attempt at `task`. Returns true if it has failed.
    pub(crate) fn note<E: Display>(&mut self, task: &str, result: Result<(), E>) -> bool {
        let problem = result.map_or_else(|error| error.to_string(), |()| String::new());
        let has_failed = !problem.is_empty();
        if has_failed && problem != self.0 {
            tracing::warn!("{task}: {problem}");
        }
        self.0 = problem;
        has_failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_fail_until_one_succeeds() {
        let mut problem = Problem::default();
        for (result, has_failed) in [(Ok(()), false), (Err("away"), true), (Err("away"), true)] {
            assert_eq!(problem.note("list", result), has_failed);
        }
        assert_eq!(problem.0, "away");
        assert!(!problem.note("list", Ok::<(), &str>(())));
        assert_eq!(problem.0, "");
    }
}
