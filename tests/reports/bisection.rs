// SPDX-License-Identifier: Apache-2.0
//! `quietwire compare --bisect` in a repository whose commits contain a script that prints a value.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quietwire_base::testing::KillOnDrop;
use quietwire_base::wait_until;
use serde_json::Value;

use super::Workspace;

const DEADLINE: Duration = Duration::from_secs(60);

/// Runs git in a directory; returns its output.
fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Makes a repository with a commit for each value that its script prints; returns its path.
fn repository(workspace: &Workspace, scripts: &[&str]) -> String {
    let path = workspace.path("repository");
    fs::create_dir(&path).unwrap();
    fs::create_dir(workspace.path("tmp")).unwrap();
    git(&path, &["init", "--quiet"]);
    for (number, script) in scripts.iter().enumerate() {
        fs::write(path.join("script.sh"), script).unwrap();
        fs::write(path.join("number"), number.to_string()).unwrap();
        git(&path, &["add", "."]);
        git(
            &path,
            &["commit", "--quiet", "-m", &format!("number {number}")],
        );
    }
    path.to_str().unwrap().to_owned()
}

/// Returns the command that bisects a repository from its commit `HEAD~commits` on.
fn bisection(workspace: &Workspace, repository: &str, commits: usize, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quietwire"));
    command
        .args(["compare", "--json", "--repository", repository, "--bisect"])
        .arg(format!("HEAD~{commits}..HEAD"))
        .args(more)
        .args(["--", "sh", "script.sh"])
        .env("TMPDIR", workspace.path("tmp"))
        .stdin(Stdio::null());
    command
}

/// Returns true if neither the repository nor the directory for temporary files has anything of a bisection.
fn is_clean(workspace: &Workspace, repository: &str) -> bool {
    let worktrees = git(Path::new(repository), &["worktree", "list", "--porcelain"]);
    let is_empty = fs::read_dir(workspace.path("tmp"))
        .unwrap()
        .next()
        .is_none();
    worktrees.matches("worktree ").count() == 1 && is_empty
}

#[test]
fn the_commit_of_a_regression_is_found_in_worktrees_that_are_removed() {
    let workspace = Workspace::new();
    let [fast, slow] = ["echo build; echo 100", "echo 80"];
    // Number 3 is broken, 5 has the regression.
    let scripts = [fast, fast, fast, "exit 1", fast, slow, slow, slow];
    let repository = repository(&workspace, &scripts);
    let output = bisection(&workspace, &repository, 7, &[]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["suspects"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found["suspects"][0]["subject"], "number 5");
    let first = &found["judged"][0];
    assert_eq!(first["finding"], "bad");
    assert_eq!(first["effect"]["ratio"].as_f64(), Some(0.8));
    assert!(is_clean(&workspace, &repository));

    // 80 is better than 100 if a lower value is.
    let mut lower = bisection(&workspace, &repository, 7, &["--lower-is-better"]);
    let refused = lower.output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(printed.contains("no regression"), "{printed}");
    // The broken commit may have the regression as well.
    git(
        Path::new(&repository),
        &["checkout", "--quiet", "--force", "HEAD~4"],
    );
    fs::write(Path::new(&repository).join("script.sh"), slow).unwrap();
    git(
        Path::new(&repository),
        &["commit", "--quiet", "-am", "slow at once"],
    );
    let output = bisection(&workspace, &repository, 2, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let subjects: Vec<&Value> = found["suspects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["subject"])
        .collect();
    assert_eq!(subjects, ["number 3", "slow at once"]);
    assert!(is_clean(&workspace, &repository));
    workspace.refused(
        &[
            "compare",
            "--bisect",
            "HEAD",
            "--repository",
            &repository,
            "--",
            "true",
        ],
        &["'HEAD'", "GOOD..BAD"],
    );
    workspace.refused(
        &[
            "compare",
            "--bisect",
            "none..HEAD",
            "--repository",
            &repository,
            "--",
            "true",
        ],
        &["'none'", "is not a commit"],
    );
}

#[test]
fn a_killed_bisection_leaves_no_worktree() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let workspace = Workspace::new();
        let begun = workspace.path("begun");
        let script = format!("touch {}; exec sleep 60", begun.display());
        let repository = repository(&workspace, &["echo 1", &script]);
        let mut command = bisection(&workspace, &repository, 1, &[]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = KillOnDrop(command.spawn().unwrap());
        assert!(wait_until(DEADLINE, || begun.exists()));
        assert!(!is_clean(&workspace, &repository));
        kill(Pid::from_raw(i32::try_from(running.id()).unwrap()), signal).unwrap();
        running.wait().unwrap();
        assert!(
            wait_until(DEADLINE, || is_clean(&workspace, &repository)),
            "{signal}"
        );
    }
}
