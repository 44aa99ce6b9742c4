// SPDX-License-Identifier: Apache-2.0
//! The first page: stores, the switch and the partition. A script of its own refreshes it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// Style of the page.
const STYLE: &str = include_str!("index.css");
/// Script of the page.
pub(crate) const SCRIPT: &str = include_str!("index.js");

/// Returns the page. The script fills its tables.
pub(crate) fn page() -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "quietwire" }
                style { (PreEscaped(STYLE)) }
                script src="/index.js" defer {}
            }
            body {
                main {
                    h1 { "quietwire" }
                    noscript { p { "This page requires scripts. The data is also at /api/studies, /api/switch and /api/partition." } }
                    section aria-labelledby="studies" {
                        h2 #studies { "Studies" }
                        p #studies-note role="status" { "Loading" }
                        table {
                            (head(&["store", "study", "state", "steps", "trials", "invalid", "latest trial"]))
                            tbody #studies-rows {}
                        }
                        p {
                            label { "Ready-made study: " select #start-study {} } " "
                            label { input #start-quick type="checkbox"; " short version" } " "
                            label { "Token: " input #start-token type="password" autocomplete="off"; } " "
                            button #start-button type="button" { "Start" }
                        }
                        p #start-note role="status" {}
                    }
                    section aria-labelledby="switch" {
                        h2 #switch { "Switch" }
                        p #switch-note { "Loading" }
                        table {
                            (head(&["port", "state", "received, frames/s", "sent, frames/s", "drops"]))
                            tbody #ports-rows {}
                        }
                        table {
                            (head(&["forwarding CPU", "load", "received, frames/s", "steps"]))
                            tbody #threads-rows {}
                        }
                        p #connections-note {}
                    }
                    section aria-labelledby="partition" {
                        h2 #partition { "Partition" }
                        p #partition-note role="status" { "Loading" }
                        table {
                            (head(&["check", "verdict", "expected", "actual", "remedy"]))
                            tbody #checks-rows {}
                        }
                    }
                }
            }
        }
    }
    .into_string()
}

/// Renders the head of a table.
fn head(labels: &[&str]) -> Markup {
    html! {
        thead { tr { @for label in labels { th scope="col" { (label) } } } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_that_the_script_uses_is_on_the_page() {
        let page = page();
        let mut used = 0;
        for call in ["getElementById(\"", "note(\"", "fill(\""] {
            for rest in SCRIPT.split(call).skip(1) {
                let (id, _) = rest.split_once('"').unwrap();
                assert!(page.contains(&format!(" id=\"{id}\"")), "{id}: {page}");
                used += 1;
            }
        }
        assert!(used > 10, "{used}");
    }
}
