// SPDX-License-Identifier: Apache-2.0
//! Converts options to the text of a study file. Methods, keys and checks are thus the same.

mod settings;

use std::fmt::Write as _;

use quietwire_tester::FrameSizes;

use super::arguments::MeasureArgs;

pub(super) use settings::{Assignment, NamedGoal, method_parser};

/// Keys that have an option: section, key, option.
const OPTIONS: [(&str, &str, &str); 8] = [
    ("search", "method", "the METHOD before the options"),
    ("traffic", "frame-sizes", "--frame-size"),
    ("traffic", "directions", "--one-way or --reverse"),
    ("traffic", "flows", "--flows"),
    ("trials", "duration-s", "--duration"),
    ("trials", "warm-up-s", "--warm-up"),
    ("trials", "drain-s", "--drain"),
    ("trials", "max-rate-pps", "--max-rate-pps"),
];

/// Refuses a `--set` of a key that is set twice or has an option.
pub(super) fn check_settings(args: &MeasureArgs) -> Result<(), String> {
    let mut observed = Vec::new();
    for setting in &args.settings {
        let section = setting.section.as_deref().unwrap_or(args.method.section);
        let place = (section, setting.key.as_str());
        if let Some((.., option)) = OPTIONS.iter().find(|it| (it.0, it.1) == place) {
            return Err(format!(
                "--set {section}.{}: use {option} instead",
                setting.key
            ));
        }
        if observed.contains(&place) {
            return Err(format!("--set {section}.{} is given twice", setting.key));
        }
        observed.push(place);
    }
    Ok(())
}

/// Returns the option of a key of the study file, which is a path like `trials.max-rate-pps` or `search.goal[0].name`.
pub(super) fn option_of(key: &str) -> String {
    let is_it = |(section, name, _): &&(&str, &str, &str)| {
        let rest = key.strip_prefix(*section);
        rest.and_then(|rest| rest.strip_prefix('.')) == Some(*name)
    };
    if let Some((.., option)) = OPTIONS.iter().find(is_it) {
        return (*option).to_owned();
    }
    let of_goal = key.strip_prefix("search.goal[");
    if of_goal.is_some_and(|rest| rest.ends_with("].name") || rest.ends_with("].loss-ratio")) {
        return "--goal".to_owned();
    }
    format!("--set {key}")
}

/// Returns the text of the study file.
pub(super) fn text(args: &MeasureArgs) -> String {
    let method = args.method;
    let given = |section: &str| -> Vec<&Assignment> {
        let is_of = |it: &&Assignment| it.section.as_deref().unwrap_or(method.section) == section;
        args.settings.iter().filter(is_of).collect()
    };
    let has = |section: &str, keys: &[&str]| {
        let settings = given(section);
        settings.iter().any(|it| keys.contains(&it.key.as_str()))
    };
    let mut text = head(args);
    let mut done = vec!["traffic", "trials", "search", "goal"];
    for section in ["traffic", "trials"] {
        // The head has the keys of the options; `--set` adds keys to the same section.
        let settings = given(section);
        let place = format!("# more of [{section}]\n");
        let mut more = String::new();
        assign(&mut more, &[], &settings);
        text = text.replace(&place, &more);
    }
    let has_rate = has(method.section, &["rate-percent", "loads-percent"]);
    if let Some(search) = method.search(has_rate) {
        let mut usual = search.measured_defaults().to_vec();
        if method.section == "search" {
            usual.extend(method.defaults);
        }
        let _ = writeln!(text, "[search]\nmethod = \"{search}\"");
        assign(&mut text, &usual, &given("search"));
        goals(&mut text, args, &given("goal"));
    }
    let own = method.section;
    if own != "search" {
        let usual: Vec<_> = method
            .defaults
            .iter()
            .filter(|(key, _)| *key != "between" || !has_rate)
            .copied()
            .collect();
        let _ = writeln!(text, "[{own}]");
        assign(&mut text, &usual, &given(own));
        done.push(own);
    }
    for setting in &args.settings {
        let section = setting.section.as_deref().unwrap_or(own);
        if !done.contains(&section) {
            let _ = writeln!(text, "[{section}]");
            assign(&mut text, &[], &given(section));
            done.push(section);
        }
    }
    text.push_str("[[case]]\nname = \"device\"\nneighbours = \"none\"\n");
    text
}

/// Writes the given keys, and the defaults of the other keys.
fn assign(text: &mut String, usual: &[(&str, &str)], given: &[&Assignment]) {
    for (key, value) in usual {
        if given.iter().all(|it| it.key != *key) {
            let _ = writeln!(text, "{key} = {value}");
        }
    }
    for setting in given {
        let _ = writeln!(text, "{} = {}", setting.key, setting.value);
    }
}

fn goals(text: &mut String, args: &MeasureArgs, attributes: &[&Assignment]) {
    let named = |name: &str, loss_ratio| NamedGoal {
        name: name.to_owned(),
        loss_ratio,
    };
    let usual = [named("NDR", 0.0), named("PDR", 0.0001)];
    let goals = if args.goals.is_empty() {
        usual.as_slice()
    } else {
        &args.goals
    };
    for goal in goals {
        let _ = writeln!(
            text,
            "[[search.goal]]\nname = {:?}\nloss-ratio = {:?}",
            goal.name, goal.loss_ratio
        );
        assign(text, &[], attributes);
    }
}

fn head(args: &MeasureArgs) -> String {
    let size = match args.frame_size {
        FrameSizes::Fixed(size) => size.to_string(),
        FrameSizes::Imix => "\"imix\"".to_owned(),
    };
    let directions = match args.one_way || args.ports.len() == 1 {
        _ if args.reverse => "reverse",
        true => "one-way",
        false => "both",
    };
    let max_rate = args
        .max_rate_pps
        .map_or_else(|| "\"auto\"".to_owned(), |rate| format!("{rate:?}"));
    format!(
        "name = \"measure\"\ntitle = \"Measured by {}\"\n\
         [device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n\
         [tester]\ncpu = \"0\"\n\
         [traffic]\nframe-sizes = [{size}]\ndirections = \"{}\"\nflows = {}\n# more of [traffic]\n\
         [trials]\nduration-s = {:?}\nwarm-up-s = {:?}\ndrain-s = {:?}\nmax-rate-pps = {max_rate}\n# more of [trials]\n",
        args.method.name,
        directions,
        args.flows,
        args.duration.as_secs_f64(),
        args.warm_up.as_secs_f64(),
        args.drain.as_secs_f64(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_options() {
        for (key, option) in [
            ("trials.max-rate-pps", "--max-rate-pps"),
            ("traffic.directions", "--one-way or --reverse"),
            ("search.goal[1].loss-ratio", "--goal"),
            ("search.goal[0].name", "--goal"),
            (
                "search.goal[0].exceed-ratio",
                "--set search.goal[0].exceed-ratio",
            ),
            ("soak.duration-s", "--set soak.duration-s"),
        ] {
            assert_eq!(option_of(key), option);
        }
    }
}
