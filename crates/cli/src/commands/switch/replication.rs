// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch show replication`.

use quietwire_switch::report::ReplicationReport;

use super::table::table;

/// Formats the report.
pub(super) fn render(report: &ReplicationReport) -> String {
    let ReplicationReport {
        role,
        peers,
        sent,
        lost,
        passes,
        added,
        updated,
        removed,
        full,
        invalid,
    } = report;
    let header = ["peer", "state", "queued octets", "unacknowledged"];
    let mut table = table(header, 2);
    for peer in peers {
        let state = match peer.is_complete {
            true => "complete",
            false => "synchronising",
        };
        table.add_row([
            peer.address.clone(),
            state.to_owned(),
            peer.queued_octets.to_string(),
            peer.unacknowledged.to_string(),
        ]);
    }
    format!(
        "role: {role}\n\n{table}\n\nsent: {sent}\nlost: {lost}\npasses: {passes}\nadded: {added}\nupdated: {updated}\nremoved: {removed}\nwithout space: {full}\ninvalid: {invalid}"
    )
}
