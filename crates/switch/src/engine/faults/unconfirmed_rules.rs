// SPDX-License-Identifier: Apache-2.0
//! Rules that return because no client confirms the new ones.

use quietwire_base::wait_until;

use super::*;

fn ask(controller: &mut Controller, request: &Value) -> Value {
    match controller.answer(read(request)) {
        Answer::Ok { result, .. } => result,
        refused => panic!("{request}: {refused:?}"),
    }
}

#[test]
fn elements_keep_their_times_when_the_former_rules_return() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let rig = Rig::new();
    let mut controller = rig.controller;
    for (name, timeout_s, element) in [("guests", 1, "1"), ("members", 3600, "2")] {
        let set = json!({
            "name": name, "type": "inet_service", "timeout-s": timeout_s, "elements": [element],
        });
        ask(&mut controller, &json!({"change": {"add-set": set}}));
    }
    // The new rules have no sets.
    let staged = json!({"rules": 0, "sets": 0});
    let replace = json!({"replace-rules": {"staged": staged, "confirm_s": 3}});
    ask(&mut controller, &replace);
    let mut report = Value::Null;
    let has_returned = wait_until(Duration::from_secs(60), || {
        assert!(controller.run_periodic_work());
        report = ask(&mut controller, &json!({"show-sets": {"limit": 10}}));
        report["sets"]
            .as_array()
            .is_some_and(|sets| sets.len() == 2)
    });
    assert!(has_returned, "{report}");
    assert_eq!(report["total"], 1, "{report}");
    let member = &report["elements"][0];
    let left_s = member["expires_in_s"].as_u64();
    assert!(left_s.is_some_and(|left_s| left_s <= 3597), "{report}");
}

/// Returns the names of the rules, and the elements of all sets.
fn names_and_elements(controller: &mut Controller) -> (Vec<String>, Vec<String>) {
    let texts = |list: &Value, key: &str| -> Vec<String> {
        let list = list.as_array().cloned().unwrap_or_default();
        let texts = list.iter().map(|one| one[key].as_str().map(str::to_owned));
        texts.map(Option::unwrap).collect()
    };
    let rules = ask(controller, &json!({"show": "rules"}));
    let sets = ask(controller, &json!({"show-sets": {"limit": 10}}));
    (
        texts(&rules["rules"], "name"),
        texts(&sets["elements"], "element"),
    )
}

#[test]
fn single_changes_of_rules_and_sets_return_without_a_confirmation() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let rig = Rig::new();
    let mut controller = rig.controller;
    let set = json!({"name": "ports", "type": "inet_service", "elements": ["1"]});
    ask(&mut controller, &json!({"change": {"add-set": set}}));
    for name in ["a", "b"] {
        let rule = json!({"rule": {"name": name, "action": "drop"}});
        ask(&mut controller, &json!({"change": {"add-rule": rule}}));
    }
    let before = names_and_elements(&mut controller);
    let names = ["no-a", "a", "b"].map(str::to_owned);
    assert_eq!(before, (names.to_vec(), vec!["1".to_owned()]));
    let new = json!({"name": "c", "action": "drop"});
    for (number, change) in [
        json!({"add-rule": {"rule": new}}),
        json!({"add-rule": {"rule": new, "before": "a"}}),
        json!({"del-rule": {"name": "a"}}),
        json!({"add-elements": {"set": "ports", "elements": ["2"]}}),
        json!({"del-elements": {"set": "ports", "elements": ["1"]}}),
        json!({"del-set": {"name": "ports"}}),
    ]
    .into_iter()
    .enumerate()
    {
        // The first change returns by itself, after its time.
        let confirm_s = if number == 0 { 1 } else { 3600 };
        let request = json!({"change-rules": {"change": change, "confirm_s": confirm_s}});
        ask(&mut controller, &request);
        assert_ne!(names_and_elements(&mut controller), before, "{change}");
        if number == 0 {
            // A second change is refused, with and without a confirmation, and does not prolong the time.
            let second = json!({"del-rule": {"name": "b"}});
            for request in [
                json!({"change": second}),
                json!({"change-rules": {"change": second, "confirm_s": 9}}),
            ] {
                let refused = controller.answer(read(&request));
                let text = format!("{refused:?}");
                assert!(text.contains("wait for a confirmation"), "{text}");
            }
        } else {
            assert!(controller.run_periodic_work());
            assert_ne!(names_and_elements(&mut controller), before, "{change}");
            controller.end_confirmation_time();
        }
        let has_returned = wait_until(Duration::from_secs(60), || {
            assert!(controller.run_periodic_work());
            names_and_elements(&mut controller) == before
        });
        assert!(has_returned, "{change}");
    }
    // Confirmed: it stays.
    let change = json!({"del-rule": {"name": "a"}});
    let request = json!({"change-rules": {"change": change, "confirm_s": 1}});
    ask(&mut controller, &request);
    ask(&mut controller, &json!("confirm-rules"));
    let after = names_and_elements(&mut controller);
    std::thread::sleep(Duration::from_millis(1200));
    assert!(controller.run_periodic_work());
    assert_eq!(names_and_elements(&mut controller), after);
    assert_eq!(after.0, ["no-a", "b"]);
}

#[test]
fn only_changes_of_rules_and_sets_wait_for_a_confirmation() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let rig = Rig::new();
    let mut controller = rig.controller;
    let bridge = json!({"add-bridge": {"name": "lan", "ports": []}});
    let rule = json!({"add-rule": {"rule": {"name": "a", "action": "drop"}}});
    for (change, confirm_s, printed) in [
        (bridge, 9, "only changes of rules and sets"),
        (rule.clone(), 0, "the time for the confirmation is 0 s"),
        (rule, 86_401, "the time for the confirmation is 86401 s"),
    ] {
        let request = json!({"change-rules": {"change": change, "confirm_s": confirm_s}});
        match controller.answer(read(&request)) {
            Answer::Error { message, fault } => {
                assert!(message.contains(printed), "{message}");
                assert_eq!(fault, Fault::BadInput);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(names_and_elements(&mut controller).0, ["no-a"]);
}
