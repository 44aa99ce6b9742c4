// SPDX-License-Identifier: Apache-2.0
//! `quietwire serve`: a local web view of studies, a running switch and the partition.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use quietwire_base::read_text;
use quietwire_host::apply::STATE_DIRECTORY;
use quietwire_serve::{ServeError, ServeOptions, Server};
use quietwire_switch::config::CONTROL_SOCKET_DEFAULT;

use crate::exit::{CheckFailed, Usage, stop_on_signals};
use crate::text::print;
use crate::units::parse_path;

/// Show studies, a running switch and the partition in a browser of this machine.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Directory with the stores (*.sqlite).
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// Address of this machine to listen on; port 0 for any free port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// File with a token: clients that send it may start ready-made studies. Default: clients cannot start studies.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Control socket of the switch.
    #[arg(long, value_name = "PATH", default_value = CONTROL_SOCKET_DEFAULT, value_parser = parse_path)]
    control_socket: PathBuf,
    /// State directory of the partition.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY, hide = true)]
    partition_state: PathBuf,
}

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    if !args.directory.is_dir() {
        bail!(Usage(format!(
            "{}: is not a directory (give the directory with the stores)",
            args.directory.display()
        )));
    }
    let token = args.token_file.as_ref().map(|path| {
        let text = read_text(path);
        text.map(|text| text.trim_end().to_owned())
            .map_err(|error| Usage(format!("--token-file {}: {error}", path.display())))
    });
    let stop = stop_on_signals("a study that a client has started may still run")?;
    let server = Server::listen(ServeOptions {
        listen: args.listen,
        directory: std::path::absolute(&args.directory).context("the current directory")?,
        token: token.transpose()?,
        program: std::env::current_exe().context("the path of this program")?,
        control_socket: args.control_socket.clone(),
        partition_state: args.partition_state.clone(),
    });
    let server = server.map_err(|error| match error {
        ServeError::Listen { .. } => anyhow::Error::from(CheckFailed(error.to_string())),
        ServeError::NotLocal(_) => Usage(format!("--listen: {error}")).into(),
        ServeError::Token => Usage(format!("--token-file: {error}")).into(),
    })?;
    print(format!("http://{}", server.address()))?;
    server.serve(&stop);
    Ok(())
}
