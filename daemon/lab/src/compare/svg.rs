//! Parts of SVG text, and labels that fit.

use super::axis::Axis;
use ftld_kit::quote::escaped;

/// Width of a plot: with it, the text of a plot is readable on a phone.
pub(super) const WIDTH: f64 = 340.0;

/// Width of a character in the plots, at 13 px, for the widest of the usual fonts.
fn glyph(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 4.4,
        'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '/' | '-' => 5.6,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 13.0,
        '=' | '+' | '<' | '>' | '~' | 'A'..='Z' => 11.0,
        _ => 8.4,
    }
}

/// Position of a text relative to its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A rectangle of a plot, in pixels.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Area {
    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Returns the position of a value on the horizontal axis.
    pub(super) fn x(&self, axis: &Axis, value: f64) -> f64 {
        self.left + axis.at(value) * self.width
    }

    /// Returns the position of a value on the vertical axis.
    pub(super) fn y(&self, axis: &Axis, value: f64) -> f64 {
        self.bottom() - axis.at(value) * self.height
    }

    /// Returns the grid lines of the horizontal axis, and the mark of its break.
    pub(super) fn grid_x(&self, axis: &Axis, most: usize) -> String {
        let (mut labelled, mut others) = (String::new(), String::new());
        for tick in axis.ticks(most) {
            let x = self.x(axis, tick.value);
            let lines = if tick.is_labelled {
                &mut labelled
            } else {
                &mut others
            };
            *lines += &format!("M{x:.1} {:.1}V{:.1}", self.top, self.bottom());
        }
        let mut text = path("minor", &others) + &path("grid", &labelled);
        if axis.has_break() {
            let (x, y) = (self.left + Axis::break_at() * self.width, self.bottom());
            let stroke = |x: f64| format!("M{:.1} {:.1}l4 -8", x - 2.0, y + 4.0);
            text += &path("break", &(stroke(x - 2.0) + &stroke(x + 2.0)));
        }
        text
    }

    /// Returns the labels of the horizontal axis at a height.
    pub(super) fn labels_x(
        &self,
        axis: &Axis,
        most: usize,
        y: f64,
        show: fn(f64) -> String,
    ) -> String {
        let (mut labels, mut end) = (String::new(), f64::NEG_INFINITY);
        let ticks = axis.ticks(most).into_iter();
        for tick in ticks.filter(|tick| tick.is_labelled) {
            let text = show(tick.value);
            // A label at an end stays within the plot. One that would cover another is left out.
            let half = text_width(&text) / 2.0;
            let x = self.x(axis, tick.value).clamp(half, WIDTH - half);
            if x - half >= end {
                labels += &line("tick", Anchor::Middle, (x, y), &text);
                end = x + half;
            }
        }
        labels
    }
}

/// Returns a path, or nothing for one without points.
pub(super) fn path(class: &str, points: &str) -> String {
    if points.is_empty() {
        return String::new();
    }
    format!("<path class=\"{class}\" d=\"{points}\"/>\n")
}

/// Returns a line of text; its middle is at the point's height.
pub(super) fn line(class: &str, anchor: Anchor, (x, y): (f64, f64), text: &str) -> String {
    let anchor = match anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    let (y, text) = (y + 4.5, escaped(text));
    format!("<text class=\"{class}\"{anchor} x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n")
}

/// Returns a label that fits into a width. The tooltip has the whole label.
pub(super) fn label(anchor: Anchor, at: (f64, f64), label: &str, width: f64) -> String {
    let length = label.chars().count();
    let fits = |most: &usize| text_width(&cut(label, *most)) <= width;
    let most = (0..=length).rev().find(fits).unwrap_or(0);
    let text = line("label", anchor, at, &cut(label, most));
    format!("<g><title>{}</title>{text}</g>\n", escaped(label))
}

/// Returns a plot of this height, which is as wide as its place.
pub(super) fn svg(title: &str, height: f64, body: &str) -> String {
    format!(
        "<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\">\n{body}</svg>\n",
        escaped(title)
    )
}

/// Returns the width of a text.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().map(glyph).sum()
}

/// Returns at most `most` characters. Labels differ at their ends, so the middle is left out.
pub(super) fn cut(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.into();
    }
    let (head, tail) = (
        most.saturating_sub(1).div_ceil(2),
        most.saturating_sub(1) / 2,
    );
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(length - tail).collect();
    start + "…" + &end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_label_keeps_both_ends_and_its_tooltip_all() {
        assert_eq!(cut("lazyftl op 7 %", 14), "lazyftl op 7 %");
        assert_eq!(cut("lazyftl op 7 %", 9), "lazy… 7 %");
        assert_eq!(cut("äöüß", 3), "ä…ß");
        let text = label(Anchor::End, (1.0, 2.0), "<a & \"b\">", 39.0);
        assert!(text.contains("<title>&lt;a &amp; &quot;b&quot;&gt;</title>"));
        assert!(text.contains(">&lt;a…&gt;</text>"), "{text}");
        assert!(text_width("mm") > text_width("ii") * 2.0);
        let name = "pagemap";
        let text = label(Anchor::End, (1.0, 2.0), name, text_width(name));
        assert!(text.contains(">pagemap</text>"), "{text}");
    }
}
