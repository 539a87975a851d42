//! Scores labels as continuations of a prompt: `cargo run --release -p redline-engine --example score -- MODEL_DIRECTORY`.

use std::error::Error;

use redline_engine::{Engine, Label, Options, Prompt, ScoreRequest, Source};

fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).unwrap_or_else(|| "models/demo".into());
    let engine = Engine::load(Options::new(Source::Path(model.into())))?;
    let text = |text: &str| Prompt::Text(text.into());
    let labels = [" earth", " sea", " king"];
    let request = ScoreRequest::new(
        text("In the beginning God created the heaven and the"),
        vec![text("")],
        labels.iter().map(|label| Label::Text((*label).into())).collect(),
    );
    let outcome = engine.score(request)?;
    let item = outcome.items[0].as_ref().map_err(|error| error.message.clone())?;
    for (label, score) in labels.iter().zip(&item.scores) {
        println!("{label}: {score:.4}");
    }
    Ok(())
}
