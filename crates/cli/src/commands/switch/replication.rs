// SPDX-License-Identifier: Apache-2.0
//! `quietwire switch show replication`.

use quietwire_switch::report::ReplicationReport;

use super::table::table;

/// Formats the report.
pub(super) fn render(report: &ReplicationReport) -> String {
    let ReplicationReport {
        role,
        differing_settings,
        lower_limits,
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
    let listed = |title: &str, list: &[String]| match list.is_empty() {
        true => String::new(),
        false => format!("\n{title}: {}", list.join(", ")),
    };
    let differing = listed("other settings on the active switch", differing_settings);
    let lower = listed("lower limits than on the active switch", lower_limits);
    format!(
        "role: {role}{differing}{lower}\n\n{table}\n\nsent: {sent}\nlost: {lost}\npasses: {passes}\nadded: {added}\nupdated: {updated}\nremoved: {removed}\nwithout space: {full}\ninvalid: {invalid}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_differ_are_shown() {
        let mut report = ReplicationReport {
            role: "standby".to_owned(),
            ..ReplicationReport::default()
        };
        assert!(render(&report).starts_with("role: standby\n\n"));
        report.differing_settings = vec!["ports of NAT 'x'".to_owned(), "zones".to_owned()];
        let shown = render(&report);
        let expected =
            "role: standby\nother settings on the active switch: ports of NAT 'x', zones\n\n";
        assert!(shown.starts_with(expected), "{shown}");
        report.differing_settings.clear();
        report.lower_limits = vec!["max-entries 7 (active switch: 9)".to_owned()];
        let shown = render(&report);
        let line = "lower limits than on the active switch: max-entries 7 (active switch: 9)";
        let expected = format!("role: standby\n{line}\n\n");
        assert!(shown.starts_with(&expected), "{shown}");
    }
}
