// SPDX-License-Identifier: Apache-2.0
//! An SVG picture of rectangles, lines and texts.

use std::fmt::Write;

use quietwire_host::drawing::escaped;

const STROKE: &str = "#8896a5";

/// An unfinished picture. Later parts cover earlier ones.
pub(super) struct Picture {
    width: f64,
    height: f64,
    body: String,
}

impl Picture {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            body: String::new(),
        }
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "{element}");
    }

    /// Draws a line. Coordinates: left, top, right, bottom.
    pub(super) fn rectangle(
        &mut self,
        (left, top, right, bottom): (f64, f64, f64, f64),
        fill: &str,
    ) {
        self.add(format_args!(
            r#"<rect x="{left:.1}" y="{top:.1}" width="{:.1}" height="{:.1}" rx="3" fill="{fill}" stroke="{STROKE}"/>"#,
            right - left,
            bottom - top,
        ));
    }

    /// Draws the outline of a guest or, dashed, of a container.
    pub(super) fn frame(
        &mut self,
        (left, top, right, bottom): (f64, f64, f64, f64),
        is_dashed: bool,
    ) {
        let dashes = if is_dashed {
            r#" stroke-dasharray="5 3""#
        } else {
            ""
        };
        self.add(format_args!(
            r##"<rect x="{left:.1}" y="{top:.1}" width="{:.1}" height="{:.1}" rx="7" fill="#ffffff" stroke="#1d2733" stroke-width="1.4"{dashes}/>"##,
            right - left,
            bottom - top,
        ));
    }

    pub(super) fn line(&mut self, points: &[(f64, f64)], colour: &str, width: f64) {
        self.add(format_args!(
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="{width}"/>"#,
            listed(points)
        ));
    }

    pub(super) fn dashed(&mut self, points: &[(f64, f64)], colour: &str) {
        self.add(format_args!(
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.4" stroke-dasharray="3 3" stroke-linejoin="round"/>"#,
            listed(points)
        ));
    }

    pub(super) fn text(
        &mut self,
        (x, y): (f64, f64),
        text: &str,
        size: f64,
        colour: &str,
        is_centred: bool,
    ) {
        let anchor = if is_centred { "middle" } else { "start" };
        self.add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">{}</text>"#,
            escaped(text)
        ));
    }

    pub(super) fn to_svg(&self) -> String {
        let Self {
            width,
            height,
            body,
        } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"Helvetica, Arial, sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n"
        )
    }
}

fn listed(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    points.join(" ")
}
