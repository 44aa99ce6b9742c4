// SPDX-License-Identifier: Apache-2.0
//! Check of the network cards.

use std::path::Path;

use super::check::Check;
use crate::cards;
use crate::inventory::Inventory;

/// Most cards that the check lists. A card may have hundreds of virtual functions.
const LISTED_MAX: usize = 8;

pub(super) fn examine(root: &Path) -> Check {
    const NAME: &str = "network-cards";
    let cards = cards::report(&Inventory::read(root));
    if cards.is_empty() {
        return Check::unavailable(NAME, "none, so there are no pci: ports");
    }
    let (mut found, mut remedies) = (Vec::new(), Vec::new());
    for card in &cards {
        let address = &card.pci_address;
        for problem in &card.problems {
            found.push(format!("{address} {}", problem.what));
            remedies.push(problem.remedy.as_str());
        }
    }
    if remedies.is_empty() {
        let facts = cards.iter();
        let facts = facts.map(|card| format!("{}: {}", card.pci_address, card.facts.join(", ")));
        return Check::ok(NAME, listed(facts.collect()));
    }
    remedies.dedup();
    remedies.truncate(LISTED_MAX);
    Check::warning(NAME, listed(found)).remedy(remedies.join("; "))
}

/// Joins the first entries of a list, with the number of the others.
fn listed(mut all: Vec<String>) -> String {
    let more = all.len().saturating_sub(LISTED_MAX);
    all.truncate(LISTED_MAX);
    if more > 0 {
        all.push(format!("and {more} more (`quietwire host show` lists all)"));
    }
    all.join("; ")
}
