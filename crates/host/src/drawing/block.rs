// SPDX-License-Identifier: Apache-2.0
//! Nested boxes, laid out in rows. Each box is as large as its content.

use std::fmt::Write;

use super::xml::escaped;

/// Width of a letter in titles and text, pixels: a little more than in common fonts.
const LETTER: f64 = 6.6;
const LINE: f64 = 15.0;
const PAD: f64 = 8.0;
const SMALL_PAD: f64 = 3.0;
const FONT: f64 = 11.0;
const SMALL_FONT: f64 = 9.0;
/// Minimum width of a thread's box, pixels, which aligns numbers of one to three digits.
const LEAF_WIDTH: f64 = 30.0;
const LEAF_HEIGHT: f64 = 18.0;
const WIDE: f64 = 240.0;
const STROKE: &str = "#8896a5";

/// One box.
pub(super) struct Block {
    title: String,
    lines: Vec<String>,
    hint: Option<String>,
    fill: &'static str,
    text: &'static str,
    children: Vec<Block>,
    columns: usize,
    has_frame: bool,
    is_small: bool,
    is_dashed: bool,
    least_width: f64,
}

impl Block {
    /// Returns a box with a title that contains other boxes.
    pub(super) fn of(title: &str, fill: &'static str, children: Vec<Self>, columns: usize) -> Self {
        Self {
            title: title.to_owned(),
            lines: Vec::new(),
            hint: None,
            fill,
            text: "#1d2733",
            children,
            columns: columns.max(1),
            has_frame: true,
            is_small: false,
            is_dashed: false,
            least_width: 0.0,
        }
    }

    /// Returns boxes side by side, without an enclosing box.
    pub(super) fn grid(children: Vec<Self>, columns: usize) -> Self {
        Self {
            has_frame: false,
            ..Self::of("", "none", children, columns)
        }
    }

    /// Returns boxes below each other, without an enclosing box.
    pub(super) fn column(children: Vec<Self>) -> Self {
        Self::grid(children, 1)
    }

    /// Returns a box with text.
    pub(super) fn leaf(lines: &[String], fill: &'static str, text: &'static str) -> Self {
        Self {
            lines: lines.to_vec(),
            text,
            least_width: LEAF_WIDTH,
            ..Self::of("", fill, Vec::new(), 1)
        }
    }

    /// Reduces the padding.
    pub(super) fn small(self) -> Self {
        Self {
            is_small: true,
            ..self
        }
    }

    /// Makes the box wider than its text.
    pub(super) fn wide(self) -> Self {
        Self {
            least_width: WIDE,
            ..self
        }
    }

    /// Shows the text without a box.
    pub(super) fn plain(self) -> Self {
        Self {
            has_frame: false,
            ..self
        }
    }

    /// Draws the border as a dashed line.
    pub(super) fn dashed(self) -> Self {
        Self {
            is_dashed: true,
            ..self
        }
    }

    /// Adds a tooltip.
    pub(super) fn hint(self, hint: &str) -> Self {
        Self {
            hint: Some(hint.to_owned()),
            ..self
        }
    }

    fn pad(&self) -> f64 {
        match (self.has_frame, self.is_small) {
            (false, _) if self.lines.is_empty() => 0.0,
            (_, true) => SMALL_PAD,
            _ => PAD,
        }
    }

    fn gap(&self) -> f64 {
        if self.is_small || self.columns > 3 {
            SMALL_PAD
        } else {
            PAD
        }
    }

    fn title_height(&self) -> f64 {
        match (self.title.is_empty(), self.is_small) {
            (true, _) => 0.0,
            (false, true) => SMALL_FONT + 2.0,
            (false, false) => LINE,
        }
    }

    fn text_width(&self) -> f64 {
        let letters = |text: &String| text.chars().count() as f64 * LETTER;
        let title = letters(&self.title)
            * if self.is_small {
                SMALL_FONT / FONT
            } else {
                1.0
            };
        self.lines.iter().map(letters).fold(title, f64::max)
    }

    /// Returns the widths of the columns and the heights of the rows.
    fn tracks(&self) -> (Vec<f64>, Vec<f64>) {
        let columns = self.columns.min(self.children.len()).max(1);
        let mut widths = vec![0.0f64; columns];
        let mut heights = Vec::new();
        for row in self.children.chunks(columns) {
            let mut tall = 0.0f64;
            for (child, wide) in row.iter().zip(&mut widths) {
                let (width, height) = child.size();
                *wide = wide.max(width);
                tall = tall.max(height);
            }
            heights.push(tall);
        }
        (widths, heights)
    }

    fn size(&self) -> (f64, f64) {
        if self.children.is_empty() {
            let (pad, lines) = (self.pad(), self.lines.len() as f64);
            let width = (self.text_width() + pad).max(self.least_width);
            let height = (lines * LINE + if lines > 1.0 { pad } else { 0.0 }).max(LEAF_HEIGHT);
            return (width, height + self.title_height());
        }
        let (widths, heights) = self.tracks();
        let across = widths.iter().sum::<f64>() + self.gap() * (widths.len() as f64 - 1.0);
        let down = heights.iter().sum::<f64>() + self.gap() * (heights.len() as f64 - 1.0);
        let pad = self.pad();
        (
            across.max(self.text_width()) + 2.0 * pad,
            down + self.title_height() + 2.0 * pad,
        )
    }

    /// Renders the box and its content as SVG.
    pub(super) fn to_svg(&self) -> String {
        let (width, height) = self.size();
        let (width, height) = (width + 2.0 * PAD, height + 2.0 * PAD);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"DejaVu Sans, Verdana, sans-serif\" font-size=\"{FONT}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        let size = self.size();
        self.draw(&mut svg, PAD, PAD, size);
        svg + "</svg>\n"
    }

    fn draw(&self, svg: &mut String, x: f64, y: f64, (width, height): (f64, f64)) {
        let _ = svg.write_str("<g>");
        if let Some(hint) = &self.hint {
            let _ = write!(svg, "<title>{}</title>", escaped(hint));
        }
        if self.has_frame {
            let dashes = if self.is_dashed {
                " stroke-dasharray=\"3 2\""
            } else {
                ""
            };
            let _ = write!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"3\" fill=\"{}\" stroke=\"{STROKE}\"{dashes}/>",
                self.fill
            );
        }
        self.draw_text(svg, x, y, width);
        let (widths, heights) = self.tracks();
        let (pad, gap) = (self.pad(), self.gap());
        let mut top = y + pad + self.title_height();
        for (row, children) in self.children.chunks(widths.len()).enumerate() {
            let tall = heights.get(row).copied().unwrap_or(0.0);
            let mut left = x + pad;
            for (child, wide) in children.iter().zip(&widths) {
                child.draw(svg, left, top, child.stretched(*wide, tall));
                left += wide + gap;
            }
            top += tall + gap;
        }
        let _ = svg.write_str("</g>\n");
    }

    /// Stretches the box: all boxes of a row get the height of the highest, all boxes of a column the width of the widest.
    fn stretched(&self, width: f64, height: f64) -> (f64, f64) {
        if self.has_frame {
            (width, height)
        } else {
            self.size()
        }
    }

    fn draw_text(&self, svg: &mut String, x: f64, y: f64, width: f64) {
        let text = self.text;
        if !self.title.is_empty() {
            let size = if self.is_small { SMALL_FONT } else { FONT };
            let weight = if self.is_small { "normal" } else { "bold" };
            let (left, base) = (x + self.pad(), y + self.pad() + size - 2.0);
            let _ = write!(
                svg,
                "<text x=\"{left:.1}\" y=\"{base:.1}\" font-size=\"{size}\" font-weight=\"{weight}\" fill=\"{text}\">{}</text>",
                escaped(&self.title)
            );
        }
        let is_number = self.lines.len() == 1 && self.least_width == LEAF_WIDTH;
        for (at, line) in self.lines.iter().enumerate() {
            let base = y + LINE * (at as f64 + 1.0) - 2.0
                + if self.lines.len() > 1 { PAD / 2.0 } else { 0.0 };
            let (left, anchor) = if is_number {
                (x + width / 2.0, "middle")
            } else {
                (x + PAD / 2.0, "start")
            };
            let _ = write!(
                svg,
                "<text x=\"{left:.1}\" y=\"{base:.1}\" text-anchor=\"{anchor}\" fill=\"{text}\">{}</text>",
                escaped(line)
            );
        }
    }
}
