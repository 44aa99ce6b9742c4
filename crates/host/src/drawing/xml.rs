// SPDX-License-Identifier: Apache-2.0
//! Text in XML.

/// Escapes a text for the content of an element or for an attribute in double quotation marks.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_text_is_markup() {
        assert_eq!(
            escaped("<a b=\"1\">&lt;"),
            "&lt;a b=&quot;1&quot;&gt;&amp;lt;"
        );
        assert_eq!(escaped("it's µ"), "it's µ");
    }
}
