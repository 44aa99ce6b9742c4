// SPDX-License-Identifier: Apache-2.0
//! The page by keyboard, by screen reader, in the dark and on paper: roles, names, headings, tables and styles.

use super::checked_whole;

/// Returns the opening tags of a page's body.
fn tags(page: &str) -> Vec<&str> {
    let (_, body) = page.split_once("<body>").unwrap();
    let tags = body.split('<').skip(1);
    let tags = tags.map(|rest| rest.split_once('>').unwrap().0);
    tags.filter(|tag| !tag.starts_with('/')).collect()
}

/// Returns the value of an attribute.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = tag.split_once(&format!(" {name}=\""))?;
    Some(after.split_once('"')?.0)
}

/// Returns whether an element has a role and a name.
fn is_named(tag: &str, role: &str) -> bool {
    attribute(tag, "role") == Some(role)
        && attribute(tag, "aria-label").is_some_and(|name| !name.is_empty())
}

#[test]
fn elements_have_the_names_and_roles_that_screen_readers_and_keyboards_need() {
    let (_, page) = checked_whole();
    assert!(page.contains("<html lang=\"en\">"));
    let (mut regions, mut charts, mut heads) = (0, 0, 0);
    for tag in tags(&page) {
        let name = tag.split(' ').next().unwrap();
        let class = attribute(tag, "class").unwrap_or_default();
        if class.split(' ').any(|one| one == "scroll") {
            // A table that is wider than the screen is scrolled by keyboard, too.
            assert_eq!(attribute(tag, "tabindex"), Some("0"), "{tag}");
            assert!(is_named(tag, "region"), "{tag}");
            regions += 1;
        }
        if name == "svg" {
            let is_hidden = attribute(tag, "aria-hidden") == Some("true");
            assert!(is_hidden || is_named(tag, "img"), "{tag}");
            charts += usize::from(!is_hidden);
        }
        if name == "th" {
            assert!(attribute(tag, "scope").is_some(), "{tag}");
            heads += 1;
        }
    }
    assert!(
        regions > 5 && charts > 3 && heads > 20,
        "{regions} {charts} {heads}"
    );
}

#[test]
fn headings_are_an_outline_without_gaps() {
    let (_, page) = checked_whole();
    let levels: Vec<u32> = tags(&page)
        .iter()
        .filter_map(|tag| tag.split(' ').next()?.strip_prefix('h')?.parse().ok())
        .collect();
    assert_eq!(levels.iter().filter(|level| **level == 1).count(), 1);
    assert_eq!(levels[0], 1);
    for pair in levels.windows(2) {
        assert!(pair[1] <= pair[0] + 1, "{levels:?}");
    }
}

#[test]
fn the_style_has_a_dark_theme_and_prints_dark_on_white() {
    let style = crate::page::STYLE;
    let block = |start: &str| style.split_once(start).unwrap().1;
    let value = |block: &str, name: &str| {
        let (_, after) = block.split_once(&format!("{name}:")).unwrap();
        after.split_once(';').unwrap().0.trim().to_owned()
    };
    let names = [
        "--paper", "--ink", "--soft", "--warn", "--heat", "--k0", "--k5",
    ];
    let dark = block("@media (prefers-color-scheme: dark)");
    let print = block("@media print");
    for name in names {
        let light = value(style, name);
        assert_ne!(value(dark, name), light, "{name}");
        assert_eq!(value(print, name), light, "{name}");
    }
    assert!(style.contains(":focus-visible"));
}
