// SPDX-License-Identifier: Apache-2.0
//! Flow rules of the driver of a kernel interface (`ethtool -N`): the card delivers the frames of a rule to a receive queue or a virtual
//! function.
//!
//! The driver keeps the rules when the port's process ends. A record of them is therefore written before the first change. They are removed
//! when the port is closed, or by a later process if this one was killed. Rules of other programs are left alone.

mod record;
mod table;

use std::io;
use std::path::Path;

use self::record::Record;
use self::table::KernelTable;
use super::xdp_program::kernel::{InterfaceId, interface, network};
use crate::port::records::Record as _;
use crate::steer::SteerRule;
use crate::steer::card_rules::{self, CardRules, FlowTable, RequestedRule};
use crate::uri::PortUri;

/// Directory of the records.
const DIRECTORY: &str = "/run/quietwire/flow-rules";

/// The flow rules of a port. They are removed with this value.
#[derive(Debug, Default)]
pub(super) struct FlowRules(Option<CardRules<KernelTable>>);

impl FlowRules {
    /// Replaces the rules by those of steering rules that select a queue or a function. Returns the former ones.
    ///
    /// # Errors
    /// The port has no interface, the driver has no flow rules, or the card refuses a rule. The former rules are in the table then.
    pub(super) fn replace(
        &mut self,
        uri: &PortUri,
        rules: &[SteerRule],
    ) -> Result<Vec<RequestedRule>, String> {
        let wanted = card_rules::wanted(rules)?;
        let card = match self.0.take() {
            Some(card) => card,
            None if wanted.is_empty() => return Ok(Vec::new()),
            None => CardRules::new(open(uri)?),
        };
        let card = self.0.insert(card);
        let former = card.wanted();
        card.replace(&wanted).map_err(|why| of_card(uri, &why))?;
        Ok(former)
    }

    /// Makes the former rules the rules again. Reports those that are lost.
    pub(super) fn restore(&mut self, former: &[RequestedRule]) {
        if let Some(card) = &mut self.0
            && let Err(why) = card.replace(former)
        {
            tracing::error!("flow rules of a card are lost: {why}");
        }
    }

    /// Adds the rules again that the driver has lost. Returns their number.
    ///
    /// # Errors
    /// The driver's error, or a rule that it refuses now.
    pub(super) fn renew(&mut self) -> Result<usize, String> {
        self.0.as_mut().map_or(Ok(0), CardRules::renew)
    }

    /// Returns true if the port has flow rules.
    pub(super) fn is_used(&self) -> bool {
        let rules = self.0.as_ref().map(CardRules::wanted);
        rules.is_some_and(|rules| !rules.is_empty())
    }
}

/// Opens the table of a port's interface.
fn open(uri: &PortUri) -> Result<KernelTable, String> {
    let PortUri::AfXdp {
        interface: name, ..
    } = uri
    else {
        return Err("only af-xdp ports have flow rules of the card".to_owned());
    };
    let opened = interface(name).and_then(|id| KernelTable::open(id, Path::new(DIRECTORY)));
    let table = opened.map_err(|error| of_card(uri, &error.to_string()))?;
    match table.contents() {
        Ok(_) => Ok(table),
        Err(error) if error.raw_os_error() == Some(nix::libc::EOPNOTSUPP) => Err(of_card(
            uri,
            "its driver has no flow rules (remove queue and virtual-function from the rule)",
        )),
        Err(error) => Err(of_card(
            uri,
            &format!("cannot read its flow rules: {error}"),
        )),
    }
}

fn of_card(uri: &PortUri, why: &str) -> String {
    format!(
        "flow rules of interface '{}': {why}",
        uri.interface().unwrap_or_default()
    )
}

/// Removes the flow rules that killed processes have left on an interface of this network namespace.
pub(super) fn remove_left_on(name: &str) {
    if let Ok(id) = interface(name) {
        let removed = remove_left(Path::new(DIRECTORY), |record| record.interface == id);
        tracing::debug!("flow rules of killed processes on '{name}': {removed:?}");
    }
}

/// Removes the flow rules that killed processes have left on interfaces of this network namespace, and their records. Returns the indexes
/// of these interfaces.
#[must_use]
pub fn remove_left_flow_rules() -> Vec<u32> {
    let network = network();
    remove_left(Path::new(DIRECTORY), |record| {
        Some(record.interface.network) == network
    })
}

fn remove_left(directory: &Path, which: impl Fn(&Record) -> bool) -> Vec<u32> {
    let mut removed = Vec::new();
    for record in Record::all(directory).into_iter().filter(which) {
        if record.is_of_a_living_process() {
            continue;
        }
        let InterfaceId { index, .. } = record.interface;
        match remove_rules(directory, &record) {
            Ok(0) => record.remove(directory),
            Ok(count) => {
                tracing::info!(
                    "removed {count} flow rules of the card of interface {index}: they were left by process {}, which has ended",
                    record.process.0
                );
                record.remove(directory);
                removed.push(index);
            }
            Err(error) => tracing::warn!(
                "cannot remove the flow rules that a killed process has left on the card of interface {index}: {error}"
            ),
        }
    }
    removed
}

/// Removes the rules of a record. Returns their number.
fn remove_rules(directory: &Path, record: &Record) -> io::Result<usize> {
    let table = match KernelTable::open(record.interface, directory) {
        // The interface is gone, and its rules with it.
        Err(error) if error.raw_os_error() == Some(nix::libc::ENODEV) => return Ok(0),
        table => table?,
    };
    card_rules::remove_left(&table, &record.rules)
}
