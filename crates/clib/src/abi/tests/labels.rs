// SPDX-License-Identifier: Apache-2.0
//! Marks and labels of connections: rules that compare and set them, compared with a map, and functions with valid and wrong arguments.

use std::collections::HashMap;

use super::*;

const ARGUMENT: c_int = Status::Argument as c_int;
const HANDLE: c_int = Status::Handle as c_int;
const POINTER: c_int = Status::Pointer as c_int;

fn labelled(entries_max: u32) -> TrackerSettings {
    TrackerSettings {
        flags: TRACKER_LABELS,
        ..settings(entries_max)
    }
}

const fn label(low: u64, high: u64) -> LabelRecord {
    LabelRecord { low, high }
}

/// Creates a classifier. Returns its handle, or the status and the number of the wrong rule.
fn create(rules: &[RuleDescriptor], values: &[CtRuleDescriptor]) -> Result<u64, (c_int, usize)> {
    let (mut classifier, mut wrong) = (0, 0);
    // SAFETY: all pointers are of values, and there are as many marks and labels as rules.
    let status = unsafe {
        qw_classifier_create_ct(
            rules.as_ptr(),
            values.as_ptr(),
            rules.len(),
            0,
            0,
            &raw mut classifier,
            &raw mut wrong,
        )
    };
    match status {
        OK => Ok(classifier),
        status => Err((status, wrong)),
    }
}

fn objects(
    rules: &[RuleDescriptor],
    values: &[CtRuleDescriptor],
    settings: &TrackerSettings,
) -> Objects {
    let classifier = create(rules, values).unwrap();
    let mut tracker = 0;
    // SAFETY: all pointers are of values.
    let made = unsafe { qw_tracker_create(&raw const *settings, &raw mut tracker) };
    assert_eq!(made, OK);
    Objects {
        classifier,
        tracker,
    }
}

/// Returns a datagram from this port, in zone 0.
fn datagram(port: u16) -> (Vec<u8>, u16) {
    let sample = Sample {
        vlan: None,
        is_ipv6: false,
        protocol: UDP,
        hosts: (1, 2),
        ports: (port, 53),
        flags: 0,
        dscp: 0,
        zone: 0,
    };
    (sample.frame(), 0)
}

fn set_label(objects: &Objects, connection: u64, bits: LabelRecord, mask: LabelRecord) -> c_int {
    let (bits, mask) = (&raw const bits, &raw const mask);
    // SAFETY: both pointers are of values.
    unsafe { qw_connection_set_label(objects.tracker, connection, bits, mask) }
}

/// Returns the status and the label of a connection: the former contents after an error.
fn label_of(objects: &Objects, connection: u64) -> (c_int, LabelRecord) {
    let mut found = label(7, 7);
    // SAFETY: the pointer is of a value.
    let status = unsafe { qw_connection_get_label(objects.tracker, connection, &raw mut found) };
    (status, found)
}

fn labels_of(objects: &Objects, verdicts: &[VerdictRecord]) -> (c_int, Vec<LabelRecord>) {
    let mut labels = vec![label(7, 7); verdicts.len()];
    let (from, count, to) = (verdicts.as_ptr(), verdicts.len(), labels.as_mut_ptr());
    // SAFETY: there is a label for each verdict.
    let status = unsafe { qw_verdict_labels(objects.tracker, from, count, to) };
    (status, labels)
}

/// Returns a rule that compares and sets a few bits, at both ends of the label.
fn rule_with_values() -> impl Strategy<Value = (RuleDescriptor, CtRuleDescriptor)> {
    let bits = || (0..4u32, 1..4u32).prop_map(|(value, mask)| (value & mask, mask));
    (0..16u32, bits(), bits(), bits(), bits()).prop_map(
        |(used, mark, set_mark, of_label, set_of_label)| {
            let spread = |bits: u32| label(u64::from(bits & 1), u64::from(bits & 2) << 62);
            let rule = RuleDescriptor {
                fields: used << 12,
                ..RuleDescriptor::ANY
            };
            let values = CtRuleDescriptor {
                mark: mark.0,
                mark_mask: mark.1,
                set_mark: set_mark.0,
                set_mark_mask: set_mark.1,
                label: spread(of_label.0),
                label_mask: spread(of_label.1),
                set_label: spread(set_of_label.0),
                set_label_mask: spread(set_of_label.1),
            };
            (rule, values)
        },
    )
}

/// Compares mark and label of a connection with a rule.
fn matches_values(
    rule: &RuleDescriptor,
    values: &CtRuleDescriptor,
    (mark, label): (u32, u128),
) -> bool {
    let is_open = |field: u32| rule.fields & field == 0;
    (is_open(fields::CT_MARK) || mark & values.mark_mask == values.mark)
        && (is_open(fields::CT_LABEL) || label & values.label_mask.value() == values.label.value())
}

proptest! {
    #[test]
    fn rules_compare_and_set_marks_and_labels_as_those_of_a_map(
        list in prop::collection::vec(rule_with_values(), 0..8),
        bursts in prop::collection::vec(prop::collection::vec(1..4u16, 1..12), 1..6),
    ) {
        let (rules, values): (Vec<RuleDescriptor>, Vec<CtRuleDescriptor>) =
            list.iter().copied().unzip();
        let objects = objects(&rules, &values, &labelled(8));
        let mut known: HashMap<u16, (u32, u128)> = HashMap::new();
        for ports in bursts {
            let frames: Vec<(Vec<u8>, u16)> = ports.iter().map(|port| datagram(*port)).collect();
            let verdicts = objects.filter(&frames, 0);
            // Rules compare what connections have before the burst.
            let before = known.clone();
            for (port, verdict) in ports.iter().zip(&verdicts) {
                let former = before.get(port).copied().unwrap_or_default();
                let found = list
                    .iter()
                    .position(|(rule, values)| matches_values(rule, values, former));
                let current = known.entry(*port).or_default();
                let mut mark = former.0;
                if let Some((rule, values)) = found.map(|number| list[number]) {
                    if rule.fields & fields::SET_CT_MARK != 0 {
                        current.0 = (current.0 & !values.set_mark_mask) | values.set_mark;
                        mark = current.0;
                    }
                    if rule.fields & fields::SET_CT_LABEL != 0 {
                        let others = current.1 & !values.set_label_mask.value();
                        current.1 = others | values.set_label.value();
                    }
                }
                let number = found.map_or(u32::MAX, |number| u32::try_from(number).unwrap());
                prop_assert_eq!((verdict.action, verdict.rule), (0, number));
                prop_assert_eq!(verdict.mark, mark);
                prop_assert_ne!(verdict.connection, 0);
            }
            let (status, labels) = labels_of(&objects, &verdicts);
            prop_assert_eq!(status, OK);
            for ((port, label), verdict) in ports.iter().zip(&labels).zip(&verdicts) {
                prop_assert_eq!(label.value(), known[port].1);
                prop_assert_eq!(label_of(&objects, verdict.connection), (OK, *label));
            }
        }
    }
}

#[test]
fn bits_are_set_through_the_number_of_a_connection_until_it_ends() {
    let objects = Objects::new(&[], 0, &labelled(1));
    let tracker = objects.tracker;
    let verdict = objects.filter(&[datagram(1)], 0)[0];
    let connection = verdict.connection;
    assert_eq!(label_of(&objects, connection), (OK, label(0, 0)));
    let whole = label(5, 1 << 63);
    // SAFETY: the first pointer is of a value, and without a mask all bits are set.
    let status =
        unsafe { qw_connection_set_label(tracker, connection, &raw const whole, ptr::null()) };
    assert_eq!((status, label_of(&objects, connection)), (OK, (OK, whole)));
    let (bits, mask) = (label(2, 0), label(3, 0));
    assert_eq!(set_label(&objects, connection, bits, mask), OK);
    let expected = (OK, label(6, 1 << 63));
    assert_eq!(label_of(&objects, connection), expected);
    for (bits, mask) in [(label(4, 0), label(3, 0)), (label(0, 0), label(0, 0))] {
        assert_eq!(set_label(&objects, connection, bits, mask), ARGUMENT);
    }
    assert_eq!(label_of(&objects, connection), expected);
    for (mark, mask, status) in [
        (0x30, 0x30, OK),
        (5, 0xf, OK),
        (4, 3, ARGUMENT),
        (0, 0, ARGUMENT),
    ] {
        let set = qw_connection_set_mark_bits(tracker, connection, mark, mask);
        assert_eq!(set, status, "{mark:#x}/{mask:#x}");
    }
    assert_eq!(objects.filter(&[datagram(1)], 0)[0].mark, 0x35);

    let refused = |number: u64| {
        let one = label(1, 0);
        assert_eq!(set_label(&objects, number, one, one), HANDLE);
        assert_eq!(label_of(&objects, number), (HANDLE, label(7, 7)));
        assert_eq!(qw_connection_set_mark_bits(tracker, number, 1, 1), HANDLE);
    };
    for wrong in [0, connection + 1, connection & !(1 << 63), u64::MAX] {
        refused(wrong);
    }
    let without = VerdictRecord::DROP;
    let read = labels_of(&objects, &[without, verdict]);
    assert_eq!(read, (OK, vec![label(0, 0), expected.1]));
    // SAFETY: no pointer leads anywhere.
    let status = unsafe { qw_tracker_expire(tracker, 1000, 100_000, ptr::null_mut()) };
    assert_eq!(status, OK);
    refused(connection);
    // The entry has another connection, without the label of the former one.
    let next = objects.filter(&[datagram(2)], 1000)[0];
    assert_ne!(next.connection, connection);
    let of_next = label_of(&objects, next.connection);
    assert_eq!((next.mark, of_next), (0, (OK, label(0, 0))));
    refused(connection);
    let read = labels_of(&objects, &[next, verdict]);
    assert_eq!(read, (HANDLE, vec![label(7, 7); 2]));
}

#[test]
fn wrong_pointers_to_labels_are_errors() {
    let objects = Objects::new(&[], 0, &labelled(1));
    let tracker = objects.tracker;
    let verdict = objects.filter(&[datagram(1)], 0)[0];
    let mut labels = [label(7, 7); BURST_MAX + 1];
    let verdicts = [verdict; BURST_MAX + 1];
    let to = labels.as_mut_ptr();
    let from = verdicts.as_ptr();
    let askew = to.wrapping_byte_add(4);
    // SAFETY: pointers that are null or not aligned are refused, and so are too many verdicts; the others are of values.
    unsafe {
        let get = |to| qw_connection_get_label(tracker, verdict.connection, to);
        let read = [get(ptr::null_mut()), get(askew), get(to)];
        assert_eq!(read, [POINTER, POINTER, OK]);
        let set = |bits, mask| qw_connection_set_label(tracker, verdict.connection, bits, mask);
        assert_eq!(set(ptr::null(), ptr::null()), POINTER);
        assert_eq!(set(askew.cast_const(), ptr::null()), POINTER);
        assert_eq!(set(to.cast_const(), askew.cast_const()), POINTER);
        let read = |from, count, to| qw_verdict_labels(tracker, from, count, to);
        let size = Status::Size as c_int;
        assert_eq!(read(from, BURST_MAX + 1, to), size);
        assert_eq!(read(from, usize::MAX, to), size);
        assert_eq!(read(ptr::null(), 1, to), POINTER);
        assert_eq!(read(from, 1, ptr::null_mut()), POINTER);
        assert_eq!(read(from.wrapping_byte_add(4), 1, to), POINTER);
        assert_eq!(read(from, 1, askew), POINTER);
        assert_eq!(read(ptr::null(), 0, ptr::null_mut()), OK);
        assert_eq!(read(from, BURST_MAX, to), OK);
    }
    assert_eq!(labels[BURST_MAX], label(7, 7));
}

#[test]
fn a_tracker_without_labels_refuses_them_and_changes_nothing() {
    let mark = RuleDescriptor {
        fields: fields::SET_CT_MARK,
        ..RuleDescriptor::ANY
    };
    let values = CtRuleDescriptor {
        set_mark: 1,
        set_mark_mask: 1,
        label_mask: label(1, 0),
        set_label_mask: label(1, 0),
        ..CtRuleDescriptor::default()
    };
    for field in [fields::CT_LABEL, fields::SET_CT_LABEL] {
        let rule = RuleDescriptor {
            fields: field,
            ..RuleDescriptor::ANY
        };
        let objects = objects(&[mark, rule], &[values; 2], &settings(1));
        let (octets, _) = datagram(1);
        let one = packet(&octets);
        let mut verdict = VerdictRecord::DROP;
        let mut counters = TrackerCounters::default();
        let (classifier, tracker) = (objects.classifier, objects.tracker);
        // SAFETY: all pointers are of values, and the octets live on.
        let (status, read) = unsafe {
            (
                qw_filter(classifier, tracker, &raw const one, 1, 0, &raw mut verdict),
                qw_tracker_counters(tracker, &raw mut counters),
            )
        };
        assert_eq!((status, read), (ARGUMENT, OK));
        assert_eq!(verdict, VerdictRecord::DROP);
        assert_eq!((counters.connections, counters.created), (0, 0));
    }
    // Marks require none.
    let objects = objects(&[mark], &[values], &settings(1));
    let verdict = objects.filter(&[datagram(1)], 0)[0];
    assert_eq!(verdict.mark, 1);
    let connection = verdict.connection;
    let one = label(1, 0);
    assert_eq!(set_label(&objects, connection, one, one), ARGUMENT);
    assert_eq!(label_of(&objects, connection), (OK, label(0, 0)));
}

#[test]
fn a_rule_with_wrong_marks_or_labels_is_named() {
    let mark = CtRuleDescriptor {
        mark: 1,
        mark_mask: 1,
        set_mark: 1,
        set_mark_mask: 1,
        label: label(0, 1),
        label_mask: label(0, 1),
        set_label: label(0, 1),
        set_label_mask: label(0, 1),
    };
    let none = CtRuleDescriptor::default();
    let outside = CtRuleDescriptor {
        mark: 2,
        set_mark: 2,
        label: label(1, 0),
        set_label: label(1, 0),
        ..mark
    };
    let of = |used| RuleDescriptor {
        fields: used,
        ..RuleDescriptor::ANY
    };
    for field in [
        fields::CT_MARK,
        fields::CT_LABEL,
        fields::SET_CT_MARK,
        fields::SET_CT_LABEL,
    ] {
        let rules = [of(0), of(field)];
        for wrong in [none, outside] {
            let made = create(&rules, &[none, wrong]);
            assert_eq!(made, Err((ARGUMENT, 1)), "{field:#x}");
        }
        let handle = create(&rules, &[none, mark]).unwrap();
        assert_eq!(qw_classifier_destroy(handle), OK);
    }
    let drops = RuleDescriptor {
        action: 1,
        ..of(fields::SET_CT_MARK)
    };
    assert_eq!(create(&[drops], &[mark]), Err((ARGUMENT, 0)));
    // The same condition in any number of rules is one; different ones are limited.
    let different = |bit: usize| CtRuleDescriptor {
        mark: 1 << bit,
        mark_mask: 1 << bit,
        ..none
    };
    let rules = vec![of(fields::CT_MARK); 2 * CONDITIONS_MAX + 1];
    let twice = (0..CONDITIONS_MAX).chain(0..CONDITIONS_MAX);
    let mut values: Vec<CtRuleDescriptor> = twice.map(different).collect();
    let handle = create(&rules[1..], &values).unwrap();
    assert_eq!(qw_classifier_destroy(handle), OK);
    values.push(different(CONDITIONS_MAX));
    let error = Err((ARGUMENT, 2 * CONDITIONS_MAX));
    assert_eq!(create(&rules, &values), error);
}

#[test]
fn untracked_packets_have_neither_marks_nor_labels() {
    let values = CtRuleDescriptor {
        mark_mask: 1,
        label: label(1, 0),
        label_mask: label(1, 0),
        ..CtRuleDescriptor::default()
    };
    let of = |field| RuleDescriptor {
        fields: field,
        ..RuleDescriptor::ANY
    };
    let rules = [of(fields::CT_LABEL), of(fields::CT_MARK)];
    let classifier = create(&rules, &[values; 2]).unwrap();
    let (octets, _) = datagram(1);
    let one = packet(&octets);
    let mut verdict = VerdictRecord::DROP;
    // SAFETY: both pointers are of values, and the octets live on.
    let status = unsafe { qw_classify(classifier, &raw const one, 1, &raw mut verdict) };
    assert_eq!((status, verdict.rule, verdict.mark), (OK, 1, 0));
    assert_eq!(qw_classifier_destroy(classifier), OK);
}
