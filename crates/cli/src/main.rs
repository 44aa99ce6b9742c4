// SPDX-License-Identifier: Apache-2.0
//! The `quietwire` command: parses arguments, calls the crates that do the work, prints the result and chooses the exit
//! code. It holds no logic.

// `println!` and `eprintln!` panic if the reader is gone, possibly before a command has undone its changes. `text::print`
// and `text::say` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]
// Arguments, files and output of programs: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

#[cfg(test)]
mod accepted;
mod command_line;
mod commands;
#[cfg(test)]
mod documented;
mod exit;
mod output;
mod partition_files;
mod renamed;
mod text;
mod units;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// Partition a host, switch packets on DPDK and measure data planes.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Generate(commands::generate::GenerateArgs),
    Application(commands::application::ApplicationArgs),
    Measure(commands::measure::MeasureArgs),
    Doctor(commands::doctor::DoctorArgs),
    Switch(commands::switch::SwitchArgs),
    Study(commands::study::StudyArgs),
    Compare(commands::compare::CompareArgs),
    Trend(commands::trend::TrendArgs),
    Serve(commands::serve::ServeArgs),
    Lab(commands::lab::LabArgs),
    Tester(commands::tester::TesterArgs),
    Host(commands::host::HostArgs),
    Partition(commands::partition::PartitionArgs),
    Cluster(commands::cluster::ClusterArgs),
    Manual(commands::manual::ManualArgs),
    Completions(commands::completions::CompletionsArgs),
    /// Run the agent inside a guest; started by the guest's init.
    #[command(hide = true)]
    GuestAgent,
}

fn main() -> ExitCode {
    if commands::cni::is_called() {
        start_log();
        return commands::cni::run();
    }
    let cli: Cli = match command_line::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    start_log();
    let outcome = match cli.command {
        Command::Generate(args) => commands::generate::run(&args),
        Command::Application(args) => commands::application::run(&args),
        Command::Measure(args) => commands::measure::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Switch(args) => commands::switch::run(args),
        Command::Study(args) => commands::study::run(&args),
        Command::Compare(args) => commands::compare::run(&args),
        Command::Trend(args) => commands::trend::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Lab(args) => commands::lab::run(&args),
        Command::Tester(args) => commands::tester::run(&args),
        Command::Host(args) => commands::host::run(&args),
        Command::Partition(args) => commands::partition::run(&args),
        Command::Cluster(args) => commands::cluster::run(&args),
        Command::Manual(args) => commands::manual::run(&args, Cli::command()),
        Command::Completions(args) => commands::completions::run(&args, Cli::command()),
        Command::GuestAgent => quietwire_lab::guest::agent::serve::serve().map_err(Into::into),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}

/// Starts the log on standard error.
fn start_log() {
    let filter =
        EnvFilter::try_from_env("QUIETWIRE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        // An internal error means that standard error cannot be written, so a message there would be lost as well.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}
