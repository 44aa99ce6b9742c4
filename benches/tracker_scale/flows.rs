// SPDX-License-Identifier: Apache-2.0
//! Descriptions of what the tester sends, and flows of Open vSwitch that track it.

/// Inside hosts. No number of ports here has a common divisor with it, so that each flow has another pair of host and port.
const HOSTS: u32 = 1000;
/// Hosts that are scanned, and ports of each.
const SCANNED_HOSTS: u32 = 16;
const SCANNED_PORTS: u32 = 65_535;

fn described(count: u32, order: &str, fields: &str) -> String {
    format!("[traffic]\nflows = {{ count = {count}, order = \"{order}\" }}\n{fields}")
}

/// Returns the description of UDP flows between one host and two others, which `number` selects. With two queues, the flows of a queue have
/// one destination.
pub(crate) fn of_two_queues(number: u8, count: u32) -> String {
    // An odd number of ports, so that both destinations have flows from each of them.
    let fields = format!(
        "[traffic.ipv4]\ndestination = {{ first = \"16.{number}.0.1\", step = 256, count = 2 }}\n\
         [traffic.udp]\nsource = {{ first = 1024, count = 60_001 }}\n"
    );
    described(count, "uniform", &fields)
}

/// Returns the description of UDP flows from inside hosts to one destination. Each host has about as many.
pub(crate) fn of_hosts(count: u32, destination: &str) -> String {
    // No factor is 2 or 5.
    let ports = (count / HOSTS) / 10 * 10 + 1;
    let fields = format!(
        "[traffic.ipv4]\nsource = {{ first = \"10.0.0.1\", count = {HOSTS} }}\ndestination = \"{destination}\"\n\
         [traffic.udp]\nsource = {{ first = 1024, count = {ports} }}\n"
    );
    described(count, "uniform", &fields)
}

/// Returns the description of UDP flows to all ports of some hosts: the first `count` flows, or all of them, the first ones most often.
pub(crate) fn to_all_ports(count: Option<u32>) -> String {
    let (count, order) = match count {
        Some(count) => (count, "uniform"),
        None => (SCANNED_HOSTS * SCANNED_PORTS, "zipf"),
    };
    let fields = format!(
        "[traffic.ipv4]\ndestination = {{ first = \"16.0.0.1\", count = {SCANNED_HOSTS} }}\n\
         [traffic.udp]\ndestination = {{ first = 1, count = {SCANNED_PORTS} }}\n"
    );
    described(count, order, &fields)
}

/// Returns the description of open connections with requests at an interval, and of a flood of SYNs with this rate per second.
pub(crate) fn requests(syns_a_second: Option<u32>) -> String {
    let flood = syns_a_second.map_or_else(String::new, |rate| {
        format!("[connections.flood]\nrate = {rate}.0\n")
    });
    format!(
        "[connections]\nconcurrent = 5000\nrate = 100000.0\nopen-max = 65536\n[connections.client]\ncount = 100\n\
         [connections.server]\ncount = 10\n{flood}[[connections.mix]]\nname = \"open\"\nport = 80\nrequest = 64\n\
         answer = 128\ntransactions = 40\ninterval-ms = 50.0\n"
    )
}

/// Returns the description of short connections, without a rate.
pub(crate) fn short_connections() -> &'static str {
    "[connections]\nopen-max = 1048576\n[connections.client]\ncount = 1000\n\
     [connections.server]\naddress = \"198.18.64.1\"\ncount = 10\n\
     [[connections.mix]]\nname = \"short\"\nport = 80\nrequest = 64\nanswer = 128\n"
}

/// Returns flows of Open vSwitch that track connections between two ports, and translate the sources of those from the first.
pub(crate) fn of_ovs(is_translated: bool) -> String {
    let (look_up, commit) = match is_translated {
        true => (
            "ct(table=1,nat)",
            "ct(commit,nat(src=203.0.113.1-203.0.113.16:1024-65535))",
        ),
        false => ("ct(table=1)", "ct(commit)"),
    };
    format!(
        "table=0,priority=1,ip,actions={look_up}\n\
         table=1,priority=2,in_port=p0,ct_state=+trk+new,ip,actions={commit},output:p1\n\
         table=1,priority=2,in_port=p1,ct_state=+trk+new,ip,actions=ct(commit),output:p0\n\
         table=1,priority=1,in_port=p0,ct_state=+trk+est,ip,actions=output:p1\n\
         table=1,priority=1,in_port=p1,ct_state=+trk+est,ip,actions=output:p0\n"
    )
}
