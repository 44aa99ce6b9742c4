// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::*;

const CLIENT: Endpoint = (Ipv4Addr::new(198, 18, 0, 1), 1024);
const SERVER: Endpoint = (Ipv4Addr::new(198, 18, 1, 1), 80);

/// Returns a frame of 60 octets or more.
fn frame(from: Endpoint, to: Endpoint, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; (ETHERNET + IPV4 + TCP + data.len()).max(60)];
    put(
        &mut frame,
        0,
        &[2, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 8, 0, 0x45, 0],
    );
    let length = (IPV4 + TCP + data.len()) as u16;
    put(&mut frame, ETHERNET + 2, &length.to_be_bytes());
    put(&mut frame, ETHERNET + 8, &[64, 6]);
    put(&mut frame, ETHERNET + 12, &from.0.octets());
    put(&mut frame, ETHERNET + 16, &to.0.octets());
    let tcp = ETHERNET + IPV4;
    put(&mut frame, tcp, &from.1.to_be_bytes());
    put(&mut frame, tcp + 2, &to.1.to_be_bytes());
    put(&mut frame, tcp + 4, &1000u32.to_be_bytes());
    put(&mut frame, tcp + 8, &2000u32.to_be_bytes());
    put(&mut frame, tcp + 12, &[0x50, flags]);
    put(&mut frame, tcp + TCP, data);
    View::of(&frame).unwrap().complete(&mut frame);
    frame
}

/// Returns true if both checksums are correct.
fn is_correct(frame: &[u8]) -> bool {
    let mut again = frame.to_vec();
    View::of(frame).unwrap().complete(&mut again);
    again == frame
}

fn device_with(fault: ConnectionFault) -> ConnectionDevice {
    ConnectionDevice::new(ConnectionScript {
        faults: vec![fault],
        every: 1,
    })
}

#[test]
fn a_refused_connection_is_reset_and_never_forwarded() {
    let mut device = device_with(ConnectionFault::Refuse);
    let mut syn = frame(CLIENT, SERVER, SYN, &[]);
    assert_eq!(device.judge(&mut syn), Disposition::Return);
    let view = View::of(&syn).unwrap();
    assert_eq!((view.source, view.destination), (SERVER, CLIENT));
    assert_eq!((view.flags, view.acknowledgement), (RST | ACK, 1001));
    assert!(is_correct(&syn));
    assert_eq!(syn[..6], [2, 0, 0, 0, 0, 0]);
    let mut again = frame(CLIENT, SERVER, SYN, &[]);
    assert_eq!(device.judge(&mut again), Disposition::Drop);
    assert_eq!(device.into_ledger().connections[0].touched, 2);
}

#[test]
fn each_fault_touches_its_segments_only() {
    for (fault, syn_ack, request, answer) in [
        (
            ConnectionFault::DropSynAck,
            Disposition::Drop,
            Disposition::Forward,
            Disposition::Forward,
        ),
        (
            ConnectionFault::WrongAddress,
            Disposition::Forward,
            Disposition::Forward,
            Disposition::Forward,
        ),
        (
            ConnectionFault::Reset,
            Disposition::Forward,
            Disposition::Return,
            Disposition::Drop,
        ),
        (
            ConnectionFault::ChangePayload,
            Disposition::Forward,
            Disposition::Forward,
            Disposition::Forward,
        ),
        (
            ConnectionFault::Forget,
            Disposition::Forward,
            Disposition::Drop,
            Disposition::Drop,
        ),
    ] {
        let mut device = device_with(fault);
        let name = fault.name();
        let mut syn = frame(CLIENT, SERVER, SYN, &[]);
        let sent = syn.clone();
        assert_eq!(device.judge(&mut syn), Disposition::Forward, "{name}");
        assert_eq!(syn, sent, "{name}");
        let mut second = frame(SERVER, CLIENT, SYN | ACK, &[]);
        let sent = second.clone();
        assert_eq!(device.judge(&mut second), syn_ack, "{name}");
        assert_eq!(
            second != sent,
            fault == ConnectionFault::WrongAddress,
            "{name}"
        );
        assert!(is_correct(&second), "{name}");
        let mut asked = frame(CLIENT, SERVER, ACK, &[7; 30]);
        assert_eq!(device.judge(&mut asked), request, "{name}");
        if fault == ConnectionFault::Reset {
            let view = View::of(&asked).unwrap();
            assert_eq!((view.flags, view.sequence), (RST, 2000));
        }
        assert!(is_correct(&asked), "{name}");
        let mut answered = frame(SERVER, CLIENT, ACK, &[9; 30]);
        assert_eq!(device.judge(&mut answered), answer, "{name}");
        assert!(is_correct(&answered), "{name}");
        let is_changed = answered[ETHERNET + IPV4 + TCP..].contains(&(9 ^ 0x55));
        assert_eq!(
            is_changed,
            fault == ConnectionFault::ChangePayload,
            "{name}"
        );
        let ledger = device.into_ledger();
        assert_eq!((ledger.connections.len(), ledger.others), (1, 0), "{name}");
        assert!(ledger.connections[0].touched > 0, "{name}");
    }
}

#[test]
fn faults_take_turns_and_a_new_syn_begins_a_connection() {
    let script = ConnectionScript {
        faults: vec![ConnectionFault::Refuse, ConnectionFault::Forget],
        every: 3,
    };
    let faults: Vec<_> = (0..9).map(|number| script.fault(number)).collect();
    let [refuse, forget] = [ConnectionFault::Refuse, ConnectionFault::Forget].map(Some);
    assert_eq!(faults[..6], [None, None, refuse, None, None, forget]);
    assert_eq!(faults[8], refuse);
    assert_eq!(ConnectionScript::default().fault(0), None);
    let mut device = ConnectionDevice::new(ConnectionScript::default());
    let mut syn = frame(CLIENT, SERVER, SYN, &[]);
    device.judge(&mut syn);
    device.judge(&mut syn.clone());
    put(&mut syn, ETHERNET + IPV4 + 4, &5u32.to_be_bytes());
    device.judge(&mut syn);
    let ledger = device.into_ledger();
    let packets: Vec<u64> = ledger.connections.iter().map(|it| it.packets).collect();
    assert_eq!(packets, [2, 1]);
}

proptest! {
    #[test]
    fn frames_with_any_octets_are_handled(
        mut octets in prop::collection::vec(any::<u8>(), 0..120),
        is_tcp: bool,
        every in 0u64..3,
    ) {
        if is_tcp {
            put(&mut octets, 12, &[8, 0, 0x45]);
            put(&mut octets, ETHERNET + 9, &[6]);
        }
        let length = octets.len();
        let mut device = ConnectionDevice::new(ConnectionScript { faults: ConnectionFault::ALL.to_vec(), every });
        device.judge(&mut octets);
        prop_assert_eq!(octets.len(), length);
    }
}
