// SPDX-License-Identifier: Apache-2.0
//! The first page: stores, the switch and the partition. A script of its own refreshes it.

use maud::{DOCTYPE, PreEscaped, html};

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
                            thead {
                                tr {
                                    th { "store" } th { "study" } th { "state" } th { "steps" } th { "trials" } th { "invalid" }
                                    th { "latest trial" }
                                }
                            }
                            tbody #studies-rows {}
                        }
                    }
                    section aria-labelledby="switch" {
                        h2 #switch { "Switch" }
                        p #switch-note role="status" { "Loading" }
                        table {
                            thead { tr { th { "port" } th { "state" } th { "received, frames/s" } th { "sent, frames/s" } th { "drops" } } }
                            tbody #ports-rows {}
                        }
                        table {
                            thead { tr { th { "forwarding CPU" } th { "load" } th { "received, frames/s" } th { "steps" } } }
                            tbody #threads-rows {}
                        }
                    }
                    section aria-labelledby="partition" {
                        h2 #partition { "Partition" }
                        p #partition-note role="status" { "Loading" }
                        table {
                            thead { tr { th { "check" } th { "verdict" } th { "expected" } th { "actual" } th { "remedy" } } }
                            tbody #checks-rows {}
                        }
                    }
                }
            }
        }
    }
    .into_string()
}
