// SPDX-License-Identifier: Apache-2.0
//! Charts of a page as SVG files (SVG 1.1). Each has the style of the page, so it is complete without the page.

/// A chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Name of its file: its number on the page and its description, `01-throughput-of-each-case.svg`.
    pub file_name: String,
    /// The picture, XML.
    pub svg: String,
}

/// Beginning of a chart. Legends are no charts.
const START: &str = "<svg class=\"chart";
const END: &str = "</svg>";
const LABEL: &str = "aria-label=\"";

/// Longest name of a file without number and ending.
const NAME_MAX: usize = 60;

/// Returns the charts of a page, which this crate rendered, in their order.
pub(crate) fn figures(page: &str, style: &str) -> Vec<Figure> {
    // Text of the page has no tags: its angle brackets are escaped.
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((_, from)) = rest.split_once(START) {
        let Some((body, after)) = from.split_once(END) else {
            break;
        };
        let (tag, _) = body.split_once('>').unwrap_or((body, ""));
        let number = found.len().saturating_add(1);
        found.push(Figure {
            file_name: format!("{number:02}-{}.svg", slug(label(tag))),
            svg: standalone(body, style),
        });
        rest = after;
    }
    found
}

/// Returns the description of a chart.
fn label(tag: &str) -> &str {
    let from = tag.split_once(LABEL).map_or("", |(_, from)| from);
    from.split_once('"').map_or(from, |(label, _)| label)
}

/// Returns a text as a part of a file name: letters, digits and hyphens.
fn slug(text: &str) -> String {
    let mut name = String::new();
    for letter in text.chars().take(NAME_MAX) {
        if letter.is_ascii_alphanumeric() {
            name.push(letter.to_ascii_lowercase());
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    let name = name.trim_end_matches('-');
    if name.is_empty() {
        return "chart".to_owned();
    }
    name.to_owned()
}

fn standalone(body: &str, style: &str) -> String {
    let (attributes, content) = body.split_once('>').unwrap_or((body, ""));
    // The style is text of an XML element here.
    let style = style.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart{attributes}>\n\
         <style>{style}</style>\n{content}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_are_complete_pictures_and_legends_are_left_out() {
        let page = "<svg viewBox=\"0 0 1 1\"><line></line></svg><p>&lt;svg class=\"chart\"&gt;</p>\
                    <svg class=\"chart wide\" viewBox=\"0 0 2 2\" aria-label=\"Loss, 0 to 0.01 %\"><g>x</g></svg>\
                    <svg class=\"chart half\" aria-label=\"\"></svg>";
        let all = figures(page, "a > b { } /* < & */");
        let names: Vec<&str> = all.iter().map(|one| one.file_name.as_str()).collect();
        assert_eq!(names, ["01-loss-0-to-0-01.svg", "02-chart.svg"]);
        let wanted = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart wide\" \
                      viewBox=\"0 0 2 2\" aria-label=\"Loss, 0 to 0.01 %\">\n<style>a > b { } /* &lt; &amp; */</style>\n<g>x</g></svg>\n";
        assert_eq!(all[0].svg, wanted);
        assert!(figures("<svg class=\"chart", "").is_empty());
    }
}
