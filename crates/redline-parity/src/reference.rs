//! A reference dump: `parity.json` and `activations.safetensors` in one folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use redline_engine::{ActivationId, ModelInfo};
use redline_kernels::Format;
use redline_weights::{Checkpoint, WeightsError, read_file};
use serde::Deserialize;

use crate::ParityError;

/// The schema name in `parity.json`.
pub const SCHEMA: &str = "redline.parity/1";
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
    description: Description,
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
        let description: Description =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        let Description { schema, steps, tolerances, .. } = &description;
        if schema != SCHEMA {
            return Err(damaged(format!("the schema is `{schema}`, and `{SCHEMA}` is read")));
        }
        let known = |name: &String| Format::ALL.iter().any(|format| format.name() == name);
        if let Some(format) = tolerances.keys().find(|name| !known(name)) {
            return Err(damaged(format!("a tolerance of `{format}`, which is no format of weights")));
        }
        if let Some((format, bad)) = tolerances.iter().find(|(_, t)| !t.is_finite() || **t < 0.0) {
            return Err(damaged(format!("the tolerance of `{format}` is {bad}, and at least 0 is needed")));
        }
        if steps.is_empty() {
            return Err(damaged("it has no steps".to_owned()));
        }
        if let Some(empty) = steps.iter().position(|step| step.tokens.is_empty()) {
            return Err(damaged(format!("step {empty} has no tokens")));
        }
        let tensors = Checkpoint::open_file(&dir.join("activations.safetensors"))?;
        Ok(Self { dir: dir.to_owned(), description, tensors })
    }

    /// The source model, as named in the dump.
    pub fn source(&self) -> &str {
        &self.description.model.source
    }

    /// Versions of the software that made the dump.
    pub fn versions(&self) -> &BTreeMap<String, String> {
        &self.description.versions
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = &Vec<u32>> {
        self.description.steps.iter().map(|step| &step.tokens)
    }

    /// The dump's own tolerance for weights of this format.
    pub(super) fn tolerance(&self, format: Format) -> Option<f64> {
        self.description.tolerances.get(format.name()).copied()
    }

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
            let hint = format!("the dump was made of `{}`; `--model` takes that model", self.source());
            Err(self::misfit(&fact, &self.dir, hint))
        };
        let reference = &self.description.model;
        let numbers = [
            ("layers", reference.layers, model.layers),
            ("hidden values", reference.hidden, model.hidden),
            ("vocabulary entries", reference.vocab, model.vocab),
        ];
        for (what, theirs, own) in numbers {
            if theirs != own {
                return misfit(format!("the reference has {theirs} {what}, and `{}` has {own}", model.name));
            }
        }
        if let Some(id) = self.steps().flatten().find(|&&id| id as usize >= model.vocab) {
            return misfit(format!("token id {id} is not in the vocabulary of {} entries", model.vocab));
        }
        let total: usize = self.steps().map(Vec::len).sum();
        if total > model.context {
            let ModelInfo { name, context, .. } = model;
            return misfit(format!("its steps have {total} tokens, and the context of `{name}` {context}"));
        }
        self.names_fit(activations)
    }

    /// Checks that every activation of every step exists with its shape, and that there are no others.
    fn names_fit(&self, activations: &[(ActivationId, usize)]) -> Result<(), ParityError> {
        let misfit = |fact: String, hint: &str| Err(misfit(&fact, self.tensors.origin(), hint.to_owned()));
        let mut missing = Vec::new();
        let mut known = BTreeSet::new();
        for (step, tokens) in self.steps().enumerate() {
            for &(id, width) in activations {
                let (name, needed) = (tensor(step, id), [tokens.len(), width]);
                match self.tensors.info(&name) {
                    None => missing.push(name.clone()),
                    Some(info) if info.shape != needed => {
                        let shape = &info.shape;
                        return misfit(
                            format!("`{name}` has the shape {shape:?}, and this model has {needed:?}"),
                            "rows are the step's tokens, heads lie side by side; the model may be another one",
                        );
                    }
                    Some(_) => {}
                }
                known.insert(name);
            }
        }
        if !missing.is_empty() {
            let hint = "make the dump again: `cargo xtask parity-reference`; docs/parity.md lists the names";
            return misfit(format!("{} missing: {}", counted(&missing), listed(&missing)), hint);
        }
        let unknown = self.tensors.names().filter(|name| !known.contains(*name));
        let unknown: Vec<String> = unknown.map(str::to_owned).collect();
        if !unknown.is_empty() {
            let fact = format!("{} not of this model: {}", counted(&unknown), listed(&unknown));
            return misfit(fact, "the dump was made of another model, or has steps that `parity.json` lacks");
        }
        Ok(())
    }
}

fn misfit(fact: &str, place: &Path, hint: String) -> ParityError {
    ParityError::Misfit { fact: format!("{fact}\n  in `{}`", place.display()), hint }
}

fn counted(names: &[String]) -> String {
    if names.len() == 1 { "1 activation is".to_owned() } else { format!("{} activations are", names.len()) }
}

fn listed(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > SHOWN { ", .." } else { "" };
    shown.join(", ") + more
}
