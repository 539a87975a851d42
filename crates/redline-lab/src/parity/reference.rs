//! A reference dump: `parity.json` and `activations.safetensors` in one folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use redline_engine::{ActivationId, ModelInfo};
use redline_kernels::Format;
use redline_weights::{Checkpoint, WeightsError, read_file};
use serde::Deserialize;

use super::ParityError;

/// The schema name in `parity.json`.
pub const SCHEMA: &str = "redline.parity/1";
/// Maximum size of `parity.json` in bytes.
const MAX_DESCRIPTION: u64 = 16 << 20;
/// Maximum number of names shown in an error.
const SHOWN: usize = 3;

/// The content of `parity.json`; other fields are for people.
#[derive(Debug, Deserialize)]
struct Description {
    schema: String,
    model: ModelFacts,
    steps: Vec<Step>,
    /// Tolerances of the normalised squared error by weight format.
    #[serde(default)]
    tolerances: BTreeMap<String, f64>,
    #[serde(default)]
    versions: BTreeMap<String, String>,
}

/// The model that made the dump.
#[derive(Debug, Deserialize)]
struct ModelFacts {
    source: String,
    layers: usize,
    hidden: usize,
    vocab: usize,
}

#[derive(Debug, Deserialize)]
struct Step {
    tokens: Vec<u32>,
}

/// A dump whose files were opened and validated, independent of a model.
pub struct Reference {
    dir: PathBuf,
    source: String,
    facts: (usize, usize, usize),
    steps: Vec<Vec<u32>>,
    tolerances: BTreeMap<String, f64>,
    versions: BTreeMap<String, String>,
    tensors: Checkpoint,
}

impl From<WeightsError> for ParityError {
    fn from(error: WeightsError) -> Self {
        let hint = match error {
            WeightsError::NonFinite { .. } => {
                Some("nothing can be compared with it: make the dump again, in f32".to_owned())
            }
            WeightsError::Io { .. } => Some("`cargo xtask parity-reference` makes such a folder".to_owned()),
            _ => error.hint().map(|hint| hint.to_string()),
        };
        Self::Damaged { fact: error.to_string(), hint }
    }
}

/// The name of an activation in a dump.
fn tensor(step: usize, id: ActivationId) -> String {
    format!("step{step}.{id}")
}

impl Reference {
    /// Opens the dump in `dir`.
    pub fn open(dir: &Path) -> Result<Self, ParityError> {
        let path = dir.join("parity.json");
        let damaged = |what: String| ParityError::Damaged {
            fact: format!("{what}\n  in `{}`", path.display()),
            hint: Some("make the dump again: `cargo xtask parity-reference`".to_owned()),
        };
        let bytes = read_file(&path, MAX_DESCRIPTION)?;
        let described: Description =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if described.schema != SCHEMA {
            return Err(damaged(format!("the schema is `{}`, and `{SCHEMA}` is read", described.schema)));
        }
        let formats = || Format::ALL.iter().map(|format| format.name());
        if let Some(format) = described.tolerances.keys().find(|key| formats().all(|name| name != *key)) {
            return Err(damaged(format!("a tolerance of `{format}`, which is no format of weights")));
        }
        if let Some((format, bad)) = described.tolerances.iter().find(|(_, t)| !t.is_finite() || **t < 0.0) {
            return Err(damaged(format!("the tolerance of `{format}` is {bad}, and at least 0 is needed")));
        }
        let steps: Vec<Vec<u32>> = described.steps.into_iter().map(|step| step.tokens).collect();
        if steps.is_empty() {
            return Err(damaged("it has no steps".to_owned()));
        }
        if let Some(empty) = steps.iter().position(Vec::is_empty) {
            return Err(damaged(format!("step {empty} has no tokens")));
        }
        let ModelFacts { source, layers, hidden, vocab } = described.model;
        Ok(Self {
            dir: dir.to_owned(),
            source,
            facts: (layers, hidden, vocab),
            steps,
            tolerances: described.tolerances,
            versions: described.versions,
            tensors: Checkpoint::open_file(&dir.join("activations.safetensors"))?,
        })
    }

    /// The source model, as named in the dump.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Versions of the software that made the dump.
    pub fn versions(&self) -> &BTreeMap<String, String> {
        &self.versions
    }

    /// Tokens of each step.
    pub fn steps(&self) -> &[Vec<u32>] {
        &self.steps
    }

    /// The dump's own tolerance for weights of this format.
    pub(super) fn tolerance(&self, format: Format) -> Option<f64> {
        self.tolerances.get(format.name()).copied()
    }

    /// Reads row `row` of an activation.
    pub(super) fn read(
        &self,
        step: usize,
        id: ActivationId,
        row: usize,
        out: &mut [f32],
    ) -> Result<(), ParityError> {
        Ok(self.tensors.read_f32_range(&tensor(step, id), row * out.len(), out)?)
    }

    /// Checks that the dump is for this model and complete.
    pub(super) fn fits(
        &self,
        model: &ModelInfo,
        activations: &[(ActivationId, usize)],
    ) -> Result<(), ParityError> {
        let misfit = |fact: String| {
            let place = self.dir.display();
            let hint = format!("the dump was made of `{}`; `--model` takes that model", self.source);
            Err(ParityError::Misfit { fact: format!("{fact}\n  in `{place}`"), hint })
        };
        let (layers, hidden, vocab) = self.facts;
        let numbers = [
            ("layers", layers, model.layers),
            ("hidden values", hidden, model.hidden),
            ("vocabulary entries", vocab, model.vocab),
        ];
        for (what, theirs, own) in numbers {
            if theirs != own {
                return misfit(format!("the reference has {theirs} {what}, and `{}` has {own}", model.name));
            }
        }
        if let Some(id) = self.steps.iter().flatten().find(|&&id| id as usize >= model.vocab) {
            return misfit(format!("token id {id} is not in the vocabulary of {} entries", model.vocab));
        }
        let total: usize = self.steps.iter().map(Vec::len).sum();
        if total > model.context {
            return misfit(format!(
                "its steps have {total} tokens, and the context of `{}` {}",
                model.name, model.context
            ));
        }
        self.names_fit(activations)
    }

    /// Checks that every activation of every step exists with its shape, and that there are no others.
    fn names_fit(&self, activations: &[(ActivationId, usize)]) -> Result<(), ParityError> {
        let place = self.tensors.origin().display().to_string();
        let misfit = |fact: String, hint: &str| {
            Err(ParityError::Misfit { fact: format!("{fact}\n  in `{place}`"), hint: hint.to_owned() })
        };
        let mut missing = Vec::new();
        let mut known = BTreeSet::new();
        for (step, tokens) in self.steps.iter().enumerate() {
            for &(id, width) in activations {
                let name = tensor(step, id);
                match self.tensors.info(&name) {
                    None => missing.push(name.clone()),
                    Some(info) if info.shape != [tokens.len(), width] => {
                        let (found, needed) = (&info.shape, [tokens.len(), width]);
                        return misfit(
                            format!("`{name}` has the shape {found:?}, and this model has {needed:?}"),
                            "rows are the step's tokens, heads lie side by side; the model may be another one",
                        );
                    }
                    Some(_) => {}
                }
                known.insert(name);
            }
        }
        let unknown: Vec<String> =
            self.tensors.names().filter(|name| !known.contains(*name)).map(str::to_owned).collect();
        if !missing.is_empty() {
            let hint = "make the dump again: `cargo xtask parity-reference`; docs/parity.md lists the names";
            return misfit(format!("{} missing: {}", counted(&missing), listed(&missing)), hint);
        }
        if !unknown.is_empty() {
            let fact = format!("{} not of this model: {}", counted(&unknown), listed(&unknown));
            return misfit(fact, "the dump was made of another model, or has steps that `parity.json` lacks");
        }
        Ok(())
    }
}

fn counted(names: &[String]) -> String {
    if names.len() == 1 { "1 activation is".to_owned() } else { format!("{} activations are", names.len()) }
}

/// The first few names, as text.
fn listed(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > SHOWN { ", .." } else { "" };
    shown.join(", ") + more
}
