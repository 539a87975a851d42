//! Writes SVG: scales, ticks, marks. All text is escaped.

use std::fmt::Write as _;

/// Escapes `text` for an element or a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Maps values to positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    /// A linear scale. An empty domain is widened.
    pub(super) fn linear((low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        let (low, high) = if high > low { (low, high) } else { widened(low) };
        Self { low, high, from, to, log: false }
    }

    /// A logarithmic scale for positive values.
    pub(super) fn log((low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        let low = low.max(f64::MIN_POSITIVE);
        let (low, high) = if high > low { (low, high) } else { (low / 1.1, low * 1.1) };
        Self { low, high, from, to, log: true }
    }

    /// A logarithmic scale if values are positive and span more than a factor of 20, else a linear one.
    pub(super) fn fitting((low, high): (f64, f64), range: (f64, f64)) -> Self {
        if low > 0.0 && high / low > 20.0 {
            return Self::log((low / 1.1, high * 1.1), range);
        }
        let (low, high) = if high > low { (low, high) } else { widened(low) };
        let pad = (high - low) * 0.05;
        Self::linear((low - pad, high + pad), range)
    }

    /// The position of a value; values outside the domain are clamped.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let part = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + part * (self.to - self.from)
    }

    /// Whether a value is inside the domain.
    pub(super) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// About `count` round values inside the domain.
    pub(super) fn ticks(&self, count: usize) -> Vec<f64> {
        let log_ticks = if self.log { self.log_ticks(count) } else { Vec::new() };
        if log_ticks.len() > 1 {
            return log_ticks;
        }
        let step = round_step((self.high - self.low) / count.max(1) as f64);
        let first = (self.low / step).ceil();
        let steps = ((self.high / step).floor() - first).clamp(0.0, 100.0) as usize;
        (0..=steps).map(|i| (first + i as f64) * step).filter(|v| self.holds(*v)).collect()
    }

    /// Powers of ten, with 2 and 5 in between if there is room, or every few powers if there is not.
    fn log_ticks(&self, count: usize) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let decades = (self.high / self.low).log10();
        let factors: &[f64] = if decades * 3.0 <= count as f64 * 1.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every =
            if factors.len() > 1 { 1 } else { (decades / count.max(1) as f64).ceil().max(1.0) as i32 };
        let powers = (first..=last).filter(|power| power.rem_euclid(every) == 0);
        let ticks = powers.flat_map(|power| factors.iter().map(move |f| f * 10_f64.powi(power)));
        ticks.filter(|v| self.holds(*v)).collect()
    }
}

/// A domain around one value.
fn widened(value: f64) -> (f64, f64) {
    let reach = if value == 0.0 { 1.0 } else { value.abs() * 0.1 };
    (value - reach, value + reach)
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn round_step(step: f64) -> f64 {
    if !(step.is_finite() && step > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= step * 0.999_999);
    factor.unwrap_or(10.0) * power
}

/// The alignment of a text relative to its point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Number of mark shapes, so that series differ by more than colour.
const SHAPES: usize = 6;

/// A drawing in progress.
#[derive(Debug)]
pub(super) struct Drawing {
    width: f64,
    height: f64,
    label: String,
    class: &'static str,
    body: String,
}

impl Drawing {
    /// Creates an empty drawing of that size, with a text alternative.
    pub(super) fn new(class: &'static str, (width, height): (f64, f64), label: &str) -> Self {
        Self { width, height, label: label.to_owned(), class, body: String::new() }
    }

    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = write!(self.body, r#"<path class="{class}" d="M{} {}L{} {}"/>"#, n(x1), n(y1), n(x2), n(y2));
    }

    pub(super) fn rect(&mut self, class: &str, (x, y): (f64, f64), (w, h): (f64, f64)) {
        let (x, y, w, h) = (n(x), n(y), n(w.max(0.0)), n(h.max(0.0)));
        let _ = write!(self.body, r#"<rect class="{class}" x="{x}" y="{y}" width="{w}" height="{h}"/>"#);
    }

    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        let (x, y, text) = (n(x), n(y), escape(text));
        let _ = write!(self.body, r#"<text class="{class}" x="{x}" y="{y}"{anchor}>{text}</text>"#);
    }

    /// A text along a line at an angle of `degrees`.
    pub(super) fn text_along(&mut self, class: &str, (x, y): (f64, f64), degrees: f64, text: &str) {
        let (x, y, degrees, text) = (n(x), n(y), n(-degrees), escape(text));
        let turn = format!("rotate({degrees} {x} {y})");
        let _ =
            write!(self.body, r#"<text class="{class}" x="{x}" y="{y}" transform="{turn}">{text}</text>"#);
    }

    /// A line through points.
    pub(super) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut d = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _ = write!(d, "{}{} {}", if index == 0 { "M" } else { "L" }, n(*x), n(*y));
        }
        let _ = write!(self.body, r#"<path class="{class}" d="{d}"/>"#);
    }

    /// A step curve that goes right, then up, at each point.
    pub(super) fn steps(&mut self, class: &str, begin: (f64, f64), points: &[(f64, f64)]) {
        let mut d = format!("M{} {}", n(begin.0), n(begin.1));
        for (x, y) in points {
            let _ = write!(d, "H{}V{}", n(*x), n(*y));
        }
        let _ = write!(self.body, r#"<path class="{class}" d="{d}"/>"#);
    }

    /// Vertical strokes of one height in a single path.
    pub(super) fn strokes(&mut self, class: &str, places: &[f64], (top, bottom): (f64, f64)) {
        let mut d = String::new();
        for x in places {
            let _ = write!(d, "M{} {}V{}", n(*x), n(top), n(bottom));
        }
        let _ = write!(self.body, r#"<path class="{class}" d="{d}"/>"#);
    }

    /// A mark with the shape of the series and the tooltip `title`.
    pub(super) fn mark(&mut self, series: usize, class: &str, (x, y): (f64, f64), title: &str) {
        let d = shape(series % SHAPES, x, y);
        let title = escape(title);
        let _ = write!(self.body, r#"<path class="mark {class}" d="{d}"><title>{title}</title></path>"#);
    }

    /// Begins a group with the tooltip `title`; [`Self::close`] ends it.
    pub(super) fn open(&mut self, title: &str) {
        let _ = write!(self.body, "<g><title>{}</title>", escape(title));
    }

    pub(super) fn close(&mut self) {
        self.body.push_str("</g>");
    }

    /// The SVG text. With `natural` size, a drawing does not shrink with the page.
    pub(super) fn finish(self, natural: bool) -> String {
        let (w, h, label, class) = (n(self.width), n(self.height), escape(&self.label), self.class);
        let size = if natural { format!(r#" width="{w}" height="{h}""#) } else { String::new() };
        format!(
            r#"<svg class="{class}" viewBox="0 0 {w} {h}"{size} role="img" aria-label="{label}">{}</svg>"#,
            self.body
        )
    }
}

/// A mark of a legend.
pub(super) fn key_mark(series: usize, class: &str) -> String {
    let d = shape(series % SHAPES, 7.0, 7.0);
    format!(
        r#"<svg class="keymark" viewBox="0 0 14 14" aria-hidden="true"><path class="mark {class}" d="{d}"/></svg>"#
    )
}

/// A stroke of a legend.
pub(super) fn key_line(class: &str) -> String {
    format!(
        r#"<svg class="keyline" viewBox="0 0 26 14" aria-hidden="true"><path class="{class}" d="M1 7H25"/></svg>"#
    )
}

/// Outlines around a point: circle, square, diamond, two triangles, plus.
fn shape(which: usize, x: f64, y: f64) -> String {
    let (px, py) = (|d: f64| n(x + d), |d: f64| n(y + d));
    match which {
        0 => format!("M{} {}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z", px(-4.0), n(y)),
        1 => format!("M{} {}h7.2v7.2h-7.2Z", px(-3.6), py(-3.6)),
        2 => format!("M{} {}l4.8 4.8l-4.8 4.8l-4.8 -4.8Z", n(x), py(-4.8)),
        3 => format!("M{} {}l4.6 8h-9.2Z", n(x), py(-5.0)),
        4 => format!("M{} {}l4.6 -8h-9.2Z", n(x), py(5.0)),
        _ => format!("M{} {}h3v3h3v3h-3v3h-3v-3h-3v-3h3Z", px(-1.5), py(-4.5)),
    }
}

/// Formats a coordinate with at most one decimal.
fn n(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    if rounded == 0.0 { "0".to_owned() } else { format!("{rounded}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_place_values_and_hold_their_ends() {
        let linear = Scale::linear((0.0, 10.0), (100.0, 0.0));
        assert_eq!([0.0, 5.0, 10.0, 20.0, -1.0].map(|v| linear.at(v)), [100.0, 50.0, 0.0, 0.0, 100.0]);
        let log = Scale::log((1.0, 100.0), (0.0, 2.0));
        assert!((log.at(10.0) - 1.0).abs() < 1e-12 && log.at(0.0) == 0.0 && log.at(1e9) == 2.0);
        // Domains with one value, without positive values, and without values.
        for scale in [
            Scale::linear((3.0, 3.0), (0.0, 1.0)),
            Scale::log((0.0, 0.0), (0.0, 1.0)),
            Scale::fitting((0.0, 0.0), (0.0, 1.0)),
        ] {
            assert!([0.0, 3.0, f64::MAX].iter().all(|v| scale.at(*v).is_finite()), "{scale:?}");
        }
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Scale::linear((0.0, 1.0), (0.0, 1.0)).ticks(4), [0.0, 0.5, 1.0]);
        assert_eq!(Scale::linear((97.0, 104.0), (0.0, 1.0)).ticks(4), [98.0, 100.0, 102.0, 104.0]);
        assert_eq!(Scale::log((1.0, 1e4), (0.0, 1.0)).ticks(5), [1.0, 10.0, 100.0, 1000.0, 10000.0]);
        assert_eq!(Scale::log((1.0, 12.0), (0.0, 1.0)).ticks(5), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(Scale::log((1.0, 1e12), (0.0, 1.0)).ticks(4).len(), 5);
        for scale in [
            Scale::linear((1.0, 1.0), (0.0, 1.0)),
            Scale::log((7.0, 7.5), (0.0, 1.0)),
            Scale::linear((-1e300, 1e300), (0.0, 1.0)),
        ] {
            let ticks = scale.ticks(4);
            assert!(
                !ticks.is_empty() && ticks.len() < 20 && ticks.iter().all(|t| scale.holds(*t)),
                "{scale:?} {ticks:?}"
            );
        }
    }

    #[test]
    fn whatever_is_written_stays_text() {
        let hostile = "</title><script>alert('1')</script>\" onload=\"x & y";
        let mut drawing = Drawing::new("x", (10.0, 10.0), hostile);
        drawing.text("t", (1.0, 2.04), Anchor::Middle, hostile);
        drawing.text_along("t", (1.0, 2.0), 30.0, hostile);
        drawing.mark(0, "s1", (1.0, 1.0), hostile);
        drawing.open(hostile);
        drawing.close();
        let text = drawing.finish(false);
        let document = roxmltree::Document::parse(&text).unwrap();
        let told = document.descendants().filter(|node| node.text() == Some(hostile)).count();
        assert_eq!(document.root_element().attribute("aria-label"), Some(hostile));
        assert!(told >= 4 && !text.contains("<script"), "{text}");
        assert_eq!(document.descendants().filter(|node| node.has_tag_name("script")).count(), 0);
    }

    #[test]
    fn every_shape_is_its_own() {
        let shapes: std::collections::BTreeSet<String> = (0..SHAPES).map(|s| shape(s, 5.0, 5.0)).collect();
        assert_eq!(shapes.len(), SHAPES);
        assert_eq!([n(-0.01), n(1.26), n(3.0)], ["0", "1.3", "3"]);
    }
}
