// SPDX-License-Identifier: Apache-2.0
//! DPDK's testpmd as a network function (Testpmd Application User Guide).

use std::path::Path;

use super::function::{Cpus, Function, Machine, Process};
use super::protocol::{PortCounters, TestpmdMode, Vnf};

/// Default largest frame without FCS (RTE_ETHER_MAX_LEN less the FCS).
const FRAME_SIZE_USUAL: u16 = 1518;
/// Its memory, MiB.
const MEMORY_MIB: u32 = 128;
/// Number of buffers: the rings of two ports and the bursts in flight.
const BUFFERS: u32 = 16384;

#[derive(Debug)]
struct Testpmd {
    process: Process,
    ports: usize,
}

pub(super) fn start(
    machine: &Machine,
    vnf: &Vnf,
    mode: TestpmdMode,
    cpus: &Cpus,
    directory: &Path,
) -> Result<Box<dyn Function>, String> {
    let addresses: Vec<&str> = machine
        .ports
        .iter()
        .map(|port| port.address.as_str())
        .collect();
    let words = command(&addresses, vnf, mode, cpus);
    let log = directory.join("testpmd.log");
    let process = Process::spawn(&words, &log)?.wait_until_up(|| {
        // testpmd prints statistics once a second after it starts to forward.
        let printed = std::fs::read_to_string(&log).unwrap_or_default();
        let is_up = statistics(&printed, addresses.len()).is_some();
        is_up
            .then_some(())
            .ok_or_else(|| "it has printed no statistics yet".to_owned())
    })?;
    Ok(Box::new(Testpmd {
        process,
        ports: addresses.len(),
    }))
}

fn command(addresses: &[&str], vnf: &Vnf, mode: TestpmdMode, cpus: &Cpus) -> Vec<String> {
    let mut lcores = vec![format!("0@{}", cpus.control.0)];
    lcores.extend(
        cpus.forwarding
            .iter()
            .zip(1..)
            .map(|(cpu, lcore)| format!("{lcore}@{}", cpu.0)),
    );
    let mut words: Vec<String> = ["dpdk-testpmd", "--in-memory", "--no-telemetry"]
        .map(str::to_owned)
        .to_vec();
    words.push(format!("--lcores={}", lcores.join(",")));
    words.extend(["-m".to_owned(), MEMORY_MIB.to_string()]);
    for address in addresses {
        words.extend(["-a".to_owned(), (*address).to_owned()]);
    }
    let mode = match mode {
        TestpmdMode::Io => "io",
        TestpmdMode::Mac => "mac",
        TestpmdMode::Macswap => "macswap",
    };
    // Without a terminal, testpmd exits at once unless it has statistics to print.
    words.extend(["--", "--auto-start", "--stats-period=1"].map(str::to_owned));
    words.push(format!("--forward-mode={mode}"));
    words.push(format!("--nb-cores={}", cpus.forwarding.len()));
    words.push(format!("--total-num-mbufs={BUFFERS}"));
    words.extend([
        format!("--rxq={}", vnf.queues),
        format!("--txq={}", vnf.queues),
    ]);
    if vnf.frame_size_max > FRAME_SIZE_USUAL {
        words.push(format!("--max-pkt-len={}", vnf.frame_size_max));
        words.push(format!(
            "--mbuf-size={}",
            u32::from(vnf.frame_size_max).saturating_add(128)
        ));
    }
    words
}

/// Parses the last complete statistics of testpmd's output (`nic_stats_display` in app/test-pmd/config.c); `None` without any.
fn statistics(printed: &str, ports: usize) -> Option<Vec<PortCounters>> {
    // testpmd may still write the last line, so a number there may lack digits.
    let printed = printed.rsplit_once('\n').map_or("", |(lines, _)| lines);
    let mut found = vec![None; ports];
    let mut port = None;
    let mut counters = PortCounters::default();
    for line in printed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at.checked_add(1)?)?.parse::<u64>().ok()
        };
        if line.contains("NIC statistics for port") {
            port = words.iter().find_map(|word| word.parse::<usize>().ok());
            counters = PortCounters::default();
        } else if let Some(frames) = value("RX-packets:") {
            counters.rx_frames = frames;
            counters.rx_dropped = value("RX-missed:").unwrap_or(0);
        } else if let Some(frames) = value("TX-packets:") {
            counters.tx_frames = frames;
            counters.tx_dropped = value("TX-errors:").unwrap_or(0);
            // The last required line of a port.
            if let Some(slot) = port.and_then(|port| found.get_mut(port)) {
                *slot = Some(counters);
            }
        }
    }
    found.into_iter().collect()
}

impl Function for Testpmd {
    fn commands(&self) -> Vec<String> {
        vec![self.process.command().to_owned()]
    }

    fn counters(&mut self) -> Result<Vec<PortCounters>, String> {
        self.process.check()?;
        statistics(&self.process.printed(), self.ports)
            .ok_or_else(|| "testpmd has printed no statistics".to_owned())
    }

    fn log(&self) -> String {
        self.process.last_words()
    }

    fn stop(&mut self) -> Result<(), String> {
        self.process.stop()
    }

    fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::VnfKind;
    use quietwire_base::fuzz::{check, planted};

    use super::*;
    use quietwire_host::CpuId;

    const PRINTED: &str = "
Port statistics ====================================
  ######################## NIC statistics for port 0  ########################
  RX-packets: 1          RX-missed: 0          RX-bytes:  60
  RX-errors: 0
  RX-nombuf:  0
  TX-packets: 2          TX-errors: 0          TX-bytes:  120
  ############################################################################

  ######################## NIC statistics for port 1  ########################
  RX-packets: 30         RX-missed: 4          RX-bytes:  60
  RX-errors: 0
  RX-nombuf:  0
  TX-packets: 5          TX-errors: 6          TX-bytes:  120

Port statistics ====================================
  ######################## NIC statistics for port 0  ########################
  RX-packets: 100        RX-missed: 0          RX-bytes:  60
";

    #[test]
    fn the_last_complete_statistics_of_each_port_count() {
        let counters = statistics(PRINTED, 2).unwrap();
        assert_eq!((counters[0].rx_frames, counters[0].tx_frames), (1, 2));
        let expected = PortCounters {
            rx_frames: 30,
            tx_frames: 5,
            rx_dropped: 4,
            tx_dropped: 6,
        };
        assert_eq!(counters[1], expected);
        assert_eq!(statistics(PRINTED, 3), None);
        assert_eq!(statistics("", 2), None);
    }

    #[test]
    fn an_output_without_its_beginning_has_the_same_statistics() {
        let expected = statistics(PRINTED, 2);
        let printed = format!("{PRINTED}{PRINTED}");
        for start in 0..=PRINTED.len() {
            assert_eq!(statistics(&printed[start..], 2), expected, "{start}");
        }
    }

    #[test]
    fn a_line_that_is_being_written_does_not_count() {
        let printed = PRINTED.replace("TX-packets: 5 ", "TX-packets: 5123 ");
        let mut whole = 0;
        for end in 0..=printed.len() {
            if let Some(counters) = statistics(&printed[..end], 2) {
                assert_eq!(counters[1].tx_frames, 5123, "{end}");
                assert_eq!(counters[1].tx_dropped, 6, "{end}");
                whole += 1;
            }
        }
        assert!(whole > 1);
    }

    #[test]
    fn the_command_says_which_ports_and_cpus() {
        let vnf = Vnf {
            kind: VnfKind::Testpmd(TestpmdMode::Mac),
            forwarding_cpus: None,
            shares_cpus: false,
            queues: 2,
            frame_size_max: 9000,
        };
        let cpus = Cpus {
            forwarding: "1-2".parse().unwrap(),
            control: CpuId(0),
            are_apart: true,
        };
        let line = command(
            &["0000:00:10.0", "0000:00:11.0"],
            &vnf,
            TestpmdMode::Mac,
            &cpus,
        )
        .join(" ");
        for part in [
            "--lcores=0@0,1@1,2@2",
            "-a 0000:00:10.0 -a 0000:00:11.0 --",
            "--forward-mode=mac --nb-cores=2",
            "--rxq=2 --txq=2",
            "--max-pkt-len=9000",
        ] {
            assert!(line.contains(part), "no '{part}' in {line}");
        }
    }

    /// Parses any text as the output of testpmd. There are counters of all ports or of none.
    fn fuzz_testpmd(octets: &[u8]) -> bool {
        let text = String::from_utf8_lossy(octets);
        assert_eq!(statistics(&text, 0), Some(Vec::new()));
        let Some(ports) = statistics(&text, 2) else {
            return statistics(&text, 1).is_some();
        };
        assert_eq!(ports.len(), 2);
        planted("lab-testpmd", || ports[1].tx_dropped == u64::MAX);
        true
    }

    #[test]
    fn fuzz_outputs() {
        check(env!("CARGO_MANIFEST_DIR"), "lab-testpmd", fuzz_testpmd);
    }
}
