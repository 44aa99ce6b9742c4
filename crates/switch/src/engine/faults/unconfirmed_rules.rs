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
