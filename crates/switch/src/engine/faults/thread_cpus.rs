// SPDX-License-Identifier: Apache-2.0
//! Threads that do not get their CPUs after a change.

use super::*;

#[test]
fn a_change_in_force_is_no_error_if_threads_cannot_be_moved() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let rig = Rig::new();
    let mut controller = rig.controller.on(Machine {
        online: || Ok(online()),
        keep_to_roles: |_| {
            Err(SwitchError::Thread {
                name: "qw-service".to_owned(),
                what: "cannot move the thread to CPUs 0".to_owned(),
            })
        },
    });
    let request = json!({"change": {"add-port": {"name": "x", "uri": "null:"}}});
    let request: Request = read(&request);
    let Answer::Ok { warning, .. } = controller.answer(request.clone()) else {
        panic!("the change is in force");
    };
    let warning = warning.unwrap();
    assert!(
        warning.contains("is in force") && warning.contains("qw-service"),
        "{warning}"
    );
    assert!(controller.engine().number("x").is_some());
    // The client may go on from there: the port exists.
    let again = controller.answer(request);
    assert!(matches!(again, Answer::Error { .. }), "{again:?}");
    let gone = json!({"change": {"del-port": {"name": "x"}}});
    let gone = controller.answer(read(&gone));
    assert!(matches!(gone, Answer::Ok { .. }), "{gone:?}");
}
