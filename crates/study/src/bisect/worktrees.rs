// SPDX-License-Identifier: Apache-2.0
//! Two worktrees of a repository: that of the good commit, and that of the commit which is judged. A guard process removes them when this
//! process asks for it, or has ended in any way.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::Deadline;
use quietwire_base::supervised::{Command, Streams, Supervised};

use super::commit::BisectCommit;
use super::error::BisectError;
use super::options::BisectOptions;

/// Time limit of one git command. Large repositories are checked out in minutes.
const GIT_MAX: Duration = Duration::from_secs(600);
/// Time limit for the removal of the worktrees.
const REMOVAL_MAX: Duration = Duration::from_secs(120);

/// Waits until the input ends, and removes the worktrees "$2" and "$3" of the repository "$1", and the directory "$4". The worktrees lie in
/// the directory. A signal does not interrupt the removal.
const GUARD: &str = r#"trap "" HUP INT TERM
cat > /dev/null
for tree in "$2" "$3"; do
    git -C "$1" worktree remove --force --force "$tree" > /dev/null 2>&1
done
rm -rf -- "$4"
git -C "$1" worktree prune
[ ! -e "$4" ]"#;

/// Worktrees, which their drop removes.
#[derive(Debug)]
pub(super) struct Worktrees {
    guard: Supervised,
    directory: PathBuf,
    good: PathBuf,
    judged: PathBuf,
}

/// Runs git in a directory and returns its output, or its error.
fn git<S: AsRef<OsStr>>(directory: &Path, arguments: &[S]) -> Result<String, BisectError> {
    let finished = Command::new("git")
        // Hooks of the repository are for its users.
        .args(["-c", "core.hooksPath=/dev/null", "-C"])
        .arg(directory)
        .args(arguments)
        .run(Deadline::after(GIT_MAX))
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                BisectError::MissingPrerequisite("git is not installed (install it)".to_owned())
            }
            _ => BisectError::Failed(format!("git: {error}")),
        })?;
    match finished.status {
        Some(status) if status.success() => {
            Ok(String::from_utf8_lossy(&finished.stdout).into_owned())
        }
        Some(_) => Err(BisectError::Failed(format!(
            "git: {}",
            String::from_utf8_lossy(&finished.stderr).trim()
        ))),
        None => Err(BisectError::Failed(format!(
            "git did not end within {} s",
            GIT_MAX.as_secs()
        ))),
    }
}

/// Returns the hash of a commit that the user names.
fn hash(options: &BisectOptions, name: &str) -> Result<String, BisectError> {
    let commit = format!("{name}^{{commit}}");
    let words = [
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &commit,
    ];
    match git(&options.repository, &words) {
        Ok(hash) => Ok(hash.trim().to_owned()),
        Err(BisectError::Failed(_)) => Err(BisectError::BadInput(format!(
            "'{name}' is not a commit of the repository {} (use GOOD..BAD, or --repository)",
            options.repository.display()
        ))),
        Err(error) => Err(error),
    }
}

/// Returns the commits after the good one up to the bad one, the oldest first: of merges, the side of the first parent.
pub(super) fn commits(options: &BisectOptions) -> Result<Vec<BisectCommit>, BisectError> {
    let (good, bad) = (hash(options, &options.good)?, hash(options, &options.bad)?);
    let ancestry = ["merge-base", "--is-ancestor", &good, &bad];
    let is_ancestor = git(&options.repository, &ancestry).is_ok();
    if !is_ancestor || good == bad {
        return Err(BisectError::BadInput(format!(
            "{} is not an ancestor of {} (name the older, good commit first)",
            options.good, options.bad
        )));
    }
    let range = format!("{good}..{bad}");
    let words = [
        "log",
        "--first-parent",
        "--reverse",
        "--format=%H %s",
        "--end-of-options",
        &range,
    ];
    let listed = git(&options.repository, &words)?;
    let commits: Vec<BisectCommit> = listed
        .lines()
        .map(|line| {
            let (hash, subject) = line.split_once(' ').unwrap_or((line, ""));
            BisectCommit {
                hash: hash.to_owned(),
                subject: subject.to_owned(),
            }
        })
        .collect();
    match commits.last() {
        Some(last) if last.hash == bad => Ok(commits),
        _ => Err(BisectError::Failed(format!(
            "git lists no commits between {} and {}",
            options.good, options.bad
        ))),
    }
}

impl Worktrees {
    /// Makes the worktrees in a new directory of the directory for temporary files.
    pub(super) fn make(options: &BisectOptions) -> Result<Self, BisectError> {
        let good_commit = hash(options, &options.good)?;
        let name = format!("quietwire-bisect-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let shown = directory.display();
        DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .map_err(|error| BisectError::Failed(format!("cannot create {shown}: {error}")))?;
        let (good, judged) = (directory.join("good"), directory.join("judged"));
        let repository = std::path::absolute(&options.repository).map_err(|error| {
            BisectError::Failed(format!("{}: {error}", options.repository.display()))
        })?;
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "quietwire-bisect"])
            .args([&repository, &good, &judged, &directory])
            .start(Streams::Input)
            .map_err(|error| BisectError::Failed(format!("cannot start sh: {error}")))?;
        guard.set_timeout(REMOVAL_MAX);
        let worktrees = Self {
            guard,
            directory,
            good,
            judged,
        };
        for tree in [&worktrees.good, &worktrees.judged] {
            let words: [&OsStr; 6] = [
                "worktree".as_ref(),
                "add".as_ref(),
                "--detach".as_ref(),
                "--quiet".as_ref(),
                tree.as_ref(),
                good_commit.as_ref(),
            ];
            git(&repository, &words)?;
        }
        Ok(worktrees)
    }

    /// Returns the directory of the good commit.
    pub(super) fn good(&self) -> &Path {
        &self.good
    }

    /// Returns the directory of the commit that is judged.
    pub(super) fn judged(&self) -> &Path {
        &self.judged
    }

    /// Returns a directory for outputs.
    pub(super) fn outputs(&self) -> &Path {
        &self.directory
    }

    /// Changes the commit that is judged. Files that the repository ignores stay, so a build reuses those of the commit before.
    pub(super) fn check_out(&self, commit: &BisectCommit) -> Result<(), BisectError> {
        let words = ["checkout", "--quiet", "--detach", "--force", &commit.hash];
        git(&self.judged, &words)?;
        git(&self.judged, &["clean", "-ffd", "--quiet"])?;
        Ok(())
    }

    /// Removes the worktrees.
    pub(super) fn remove(mut self) -> Result<(), BisectError> {
        drop(self.guard.take_stdin());
        match self.guard.wait(Deadline::after(REMOVAL_MAX)) {
            Ok(Some(status)) if status.success() => Ok(()),
            _ => Err(BisectError::Failed(format!(
                "worktrees are left in {} (remove them with `git worktree remove --force`)",
                self.directory.display()
            ))),
        }
    }
}
