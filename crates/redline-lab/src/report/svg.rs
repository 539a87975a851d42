//! Writes SVG: scales, ticks, marks. All text is escaped.

use std::fmt::Write as _;

use super::quantity::tick;

/// Escapes `text` for an element or a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let entities = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")];
    entities.into_iter().fold(text.to_owned(), |text, (c, entity)| text.replace(c, entity))
}

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

    /// The lowest value of the domain.
    pub(super) fn low(&self) -> f64 {
        self.low
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

    fn path(&mut self, class: &str, d: &str) {
        let _ = write!(self.body, r#"<path class="{class}" d="{d}"/>"#);
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.polyline(class, &[from, to]);
    }

    pub(super) fn rect(&mut self, class: &str, (x, y): (f64, f64), (w, h): (f64, f64)) {
        let (x, y, w, h) = (n(x), n(y), n(w.max(0.0)), n(h.max(0.0)));
        let _ = write!(self.body, r#"<rect class="{class}" x="{x}" y="{y}" width="{w}" height="{h}"/>"#);
    }

    pub(super) fn text(&mut self, class: &str, place: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => r#" text-anchor="middle""#,
            Anchor::End => r#" text-anchor="end""#,
        };
        self.text_with(class, place, anchor, text);
    }

    /// A text along a line at an angle of `degrees`.
    pub(super) fn text_along(&mut self, class: &str, (x, y): (f64, f64), degrees: f64, text: &str) {
        let turn = format!(r#" transform="rotate({} {} {})""#, n(-degrees), n(x), n(y));
        self.text_with(class, (x, y), &turn, text);
    }

    fn text_with(&mut self, class: &str, (x, y): (f64, f64), attribute: &str, text: &str) {
        let (x, y, text) = (n(x), n(y), escape(text));
        let _ = write!(self.body, r#"<text class="{class}" x="{x}" y="{y}"{attribute}>{text}</text>"#);
    }

    pub(super) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{} {}", n(*x), n(*y))).collect();
        self.path(class, &format!("M{}", points.join("L")));
    }

    /// A step curve that goes right, then up, at each point.
    pub(super) fn steps(&mut self, class: &str, begin: (f64, f64), points: &[(f64, f64)]) {
        let steps: Vec<String> = points.iter().map(|(x, y)| format!("H{}V{}", n(*x), n(*y))).collect();
        self.path(class, &format!("M{} {}{}", n(begin.0), n(begin.1), steps.concat()));
    }

    /// Vertical strokes of one height in a single path.
    pub(super) fn strokes(&mut self, class: &str, places: &[f64], (top, bottom): (f64, f64)) {
        let (top, bottom) = (n(top), n(bottom));
        let strokes: Vec<String> = places.iter().map(|x| format!("M{} {top}V{bottom}", n(*x))).collect();
        self.path(class, &strokes.concat());
    }

    /// Grid lines at round values of a vertical scale, with the values `gap` left of them.
    pub(super) fn rows(&mut self, y: &Scale, count: usize, (left, right): (f64, f64), gap: f64) {
        for value in y.ticks(count) {
            self.line("grid", (left, y.at(value)), (right, y.at(value)));
            self.text("tick", (left - gap, y.at(value) + 4.0), Anchor::End, &tick(value));
        }
    }

    /// Grid lines at round values of a horizontal scale, with the values `gap` below them.
    pub(super) fn columns(&mut self, x: &Scale, count: usize, (top, bottom): (f64, f64), gap: f64) {
        for value in x.ticks(count) {
            self.line("grid", (x.at(value), top), (x.at(value), bottom));
            self.text("tick", (x.at(value), bottom + gap), Anchor::Middle, &tick(value));
        }
    }

    /// A mark with the shape of the series and the tooltip `title`.
    pub(super) fn mark(&mut self, series: usize, class: &str, (x, y): (f64, f64), title: &str) {
        let (d, title) = (shape(series, x, y), escape(title));
        let _ = write!(self.body, r#"<path class="mark {class}" d="{d}"><title>{title}</title></path>"#);
    }

    /// Begins a group with the tooltip `title`; [`Self::close`] ends it.
    pub(super) fn open(&mut self, title: &str) {
        let _ = write!(self.body, "<g><title>{}</title>", escape(title));
    }

    pub(super) fn close(&mut self) {
        self.body.push_str("</g>");
    }

    /// The SVG text.
    pub(super) fn finish(self) -> String {
        let (w, h, label, class) = (n(self.width), n(self.height), escape(&self.label), self.class);
        format!(
            r#"<svg class="{class}" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">{}</svg>"#,
            self.body
        )
    }
}

/// A drawing of one path, 14 high, for a legend.
pub(super) fn key(class: &str, width: usize, path_class: &str, d: &str) -> String {
    let path = format!(r#"<path class="{path_class}" d="{d}"/>"#);
    format!(r#"<svg class="{class}" viewBox="0 0 {width} 14" aria-hidden="true">{path}</svg>"#)
}

/// Outlines around a point, in turn: circle, square, diamond, two triangles, plus.
pub(super) fn shape(series: usize, x: f64, y: f64) -> String {
    let (px, py) = (|d: f64| n(x + d), |d: f64| n(y + d));
    match series % SHAPES {
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
        let unit = (0.0, 1.0);
        for scale in
            [Scale::linear((3.0, 3.0), unit), Scale::log((0.0, 0.0), unit), Scale::fitting((0.0, 0.0), unit)]
        {
            assert!([0.0, 3.0, f64::MAX].iter().all(|v| scale.at(*v).is_finite()), "{scale:?}");
        }
    }

    #[test]
    fn ticks_are_round_and_inside() {
        let linear = |low: f64, high: f64| Scale::linear((low, high), (0.0, 1.0));
        let log = |low: f64, high: f64| Scale::log((low, high), (0.0, 1.0));
        assert_eq!(linear(0.0, 1.0).ticks(4), [0.0, 0.5, 1.0]);
        assert_eq!(linear(97.0, 104.0).ticks(4), [98.0, 100.0, 102.0, 104.0]);
        assert_eq!(log(1.0, 1e4).ticks(5), [1.0, 10.0, 100.0, 1000.0, 10000.0]);
        assert_eq!(log(1.0, 12.0).ticks(5), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(log(1.0, 1e12).ticks(4).len(), 5);
        for scale in [linear(1.0, 1.0), log(7.0, 7.5), linear(-1e300, 1e300)] {
            let ticks = scale.ticks(4);
            assert!((1..20).contains(&ticks.len()), "{scale:?} {ticks:?}");
            assert!(ticks.iter().all(|tick| scale.holds(*tick)), "{scale:?} {ticks:?}");
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
        let text = drawing.finish();
        let document = roxmltree::Document::parse(&text).unwrap();
        let texts = document.descendants().filter(|node| node.text() == Some(hostile)).count();
        assert_eq!(document.root_element().attribute("aria-label"), Some(hostile));
        assert!(texts >= 4 && !text.contains("<script"), "{text}");
        assert_eq!(document.descendants().filter(|node| node.has_tag_name("script")).count(), 0);
    }

    #[test]
    fn every_shape_is_its_own() {
        let shapes: std::collections::BTreeSet<String> = (0..SHAPES).map(|s| shape(s, 5.0, 5.0)).collect();
        assert_eq!(shapes.len(), SHAPES);
        assert_eq!([n(-0.01), n(1.26), n(3.0)], ["0", "1.3", "3"]);
    }
}
