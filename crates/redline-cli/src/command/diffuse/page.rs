//! Renders the passes over a canvas as a small animated HTML page without scripts or external resources.

use std::fmt::Write as _;

use redline_engine::{DiffuseOutcome, Engine};
use redline_system::number;

use super::frames;

const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fdfdf8;--ink:#1c1c18;--faint:#8a8a80;--veil:#dcdcd2}\
@media(prefers-color-scheme:dark){:root{--paper:#16181a;--ink:#e9e9e2;--faint:#85878a;--veil:#34383c}}\
body{background:var(--paper);color:var(--ink);font:17px/1.75 Georgia,serif;max-width:46rem;margin:3rem auto;padding:0 1.2rem}\
h1{font-size:1.5rem;margin:0}p.facts{color:var(--faint);font:14px/1.5 system-ui,sans-serif;margin:.3rem 0 1.6rem}\
main{white-space:pre-wrap;overflow-wrap:anywhere}.prompt{color:var(--faint)}\
main span.t{border-radius:.2em;color:transparent;background:var(--veil);animation:show .5s ease-out both;\
animation-delay:calc(.4s + var(--p)*var(--pace))}\
main span.m{border-radius:.2em;background:var(--veil);color:transparent}\
@keyframes show{0%{color:transparent;background:var(--veil)}30%{color:#fff;background:hsl(var(--h) 55% 42%)}\
100%{color:var(--ink);background:hsl(var(--h) 60% 50%/.16)}}\
@keyframes again{0%{color:transparent;background:var(--veil)}30%{color:#fff;background:hsl(var(--h) 55% 42%)}\
100%{color:var(--ink);background:hsl(var(--h) 60% 50%/.16)}}\
#replay{position:absolute;opacity:0}#replay:checked~main span.t{animation-name:again}\
#replay:focus-visible~label{outline:2px solid}\
label{font:14px system-ui,sans-serif;cursor:pointer;border:1px solid var(--faint);border-radius:.4em;padding:.2em .7em}\
footer{color:var(--faint);font:13px/1.5 system-ui,sans-serif;margin-top:1.6rem}\
.scale{display:inline-block;width:7rem;height:.7em;border-radius:.2em;background:linear-gradient(90deg,hsl(215 60% 50%),\
hsl(125 60% 45%),hsl(35 60% 50%))}\
@media(prefers-reduced-motion:reduce){main span.t{animation-duration:0s;animation-delay:0s}}";

/// Hues of the first and the last pass.
const HUES: (f64, f64) = (215.0, 35.0);
/// Seconds for all passes together, and the maximum for one pass.
const PACE: (f64, f64) = (12.0, 0.25);

/// Renders the page.
pub(super) fn html(engine: &Engine, model: &str, outcome: &DiffuseOutcome) -> String {
    let mut of = vec![None; outcome.canvas.len()];
    for (number, pass) in outcome.passes.iter().enumerate() {
        for filled in &pass.filled {
            of[filled.position] = Some((number, filled.confidence));
        }
    }
    let texts = frames::texts(engine.tokenizer(), &frames::unmasked(engine, &outcome.canvas));
    let passes = outcome.passes.len().max(1);
    let mut body = String::new();
    for (text, filled) in texts.iter().zip(&of) {
        match (text, filled) {
            (None, _) => body.push_str("<span class=m>&nbsp;&nbsp;&nbsp;</span>"),
            (Some(text), None) => add(&mut body, format_args!("<span class=prompt>{}</span>", escaped(text))),
            (Some(text), Some((pass, confidence))) => {
                let hue = HUES.0 + (HUES.1 - HUES.0) * *pass as f64 / passes as f64;
                add(
                    &mut body,
                    format_args!(
                        "<span class=t style=\"--p:{pass};--h:{hue:.0}\" title=\"pass {}, {confidence:.3}\">{}</span>",
                        pass + 1,
                        escaped(text)
                    ),
                );
            }
        }
    }
    let masks: usize = outcome.passes.iter().map(|pass| pass.filled.len()).sum();
    let facts = format!(
        "{model}: {masks} masks filled in {} passes over {} rows, {}, order {}",
        outcome.passes.len(),
        outcome.computed_tokens,
        number::seconds(outcome.compute_s),
        outcome.algorithm.name(),
    );
    let pace = (PACE.0 / passes as f64).min(PACE.1);
    let mut page = String::new();
    add(
        &mut page,
        format_args!(
            "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
             <title>Filled masks</title><style>{STYLE}</style>\n<h1>Filled masks</h1>\n<p class=facts>{}</p>\n\
             <input type=checkbox id=replay>\n<main style=\"--pace:{pace:.3}s\">{body}</main>\n<p><label for=replay>Play again</label></p>\n\
             <footer>Early passes <span class=scale></span> late passes. Every token tells its pass and how sure it was.</footer>\n</html>\n",
            escaped(&facts)
        ),
    );
    page
}

fn add(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = page.write_fmt(text);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
