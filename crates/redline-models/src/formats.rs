//! The formats of a model's matrices: one for all, or those in which a file stores them.

use std::collections::HashMap;
use std::fmt;

use redline_kernels::Format;

use crate::plan::Site;
use crate::spec::{DecoderSpec, LayerSpec, LinearSpec, PartSpec};

/// The format of every matrix.
#[derive(Clone, Debug)]
pub(crate) struct Formats {
    /// That of the most weights.
    common: Format,
    /// Formats of other matrices by the names of their tensors.
    others: HashMap<String, Format>,
    /// The tensors that one integer format for all does not apply to, and the format that they have.
    exceptions: HashMap<String, Format>,
    /// All that occur, the most common first.
    all: Vec<Format>,
}

impl Formats {
    /// The same format for all. But integer formats leave routers as bf16, because a small error there chooses other experts, and so
    /// the small matrices around the per-layer inputs. The table of these inputs has eight bits at least.
    pub(crate) fn one(spec: &DecoderSpec, format: Format) -> Self {
        const EXCEPTIONS: [Site; 3] = [Site::Router, Site::PerLayerGate, Site::PerLayerProjection];
        let mut exceptions = HashMap::new();
        if format.is_integer() {
            let linears = spec.layers.iter().flat_map(LayerSpec::linears);
            let kept = linears.filter(|(site, _)| EXCEPTIONS.contains(site));
            exceptions
                .extend(kept.flat_map(|(_, linear)| &linear.parts).map(|part| (part.weight(), Format::Bf16)));
            if let (Format::W4 { .. }, Some(inputs)) = (format, &spec.layer_inputs) {
                exceptions
                    .extend(inputs.table.parts.iter().map(|part| (part.weight(), Format::W8 { group: 128 })));
            }
        }
        Self { common: format, others: HashMap::new(), exceptions, all: vec![format] }
    }

    /// The format of each matrix of a specification; `of` returns that of a tensor.
    pub(crate) fn each(spec: &DecoderSpec, of: impl Fn(&str) -> Format) -> Self {
        let (mut each, mut shares) = (HashMap::new(), Vec::<(Format, usize)>::new());
        for linear in spec.linears() {
            for part in &linear.parts {
                let (format, weights) = (of(&part.weight()), part.outputs * linear.inputs);
                each.insert(part.weight(), format);
                match shares.iter_mut().find(|(known, _)| *known == format) {
                    Some((_, share)) => *share += weights,
                    None => shares.push((format, weights)),
                }
            }
        }
        // Small matrices beside the linear layers.
        for part in spec.unquantised().into_iter().flat_map(|linear| linear.parts) {
            each.insert(part.weight(), of(&part.weight()));
        }
        shares.sort_by_key(|(_, share)| std::cmp::Reverse(*share));
        let all: Vec<Format> = shares.into_iter().map(|(format, _)| format).collect();
        let common = all.first().copied().unwrap_or(Format::F32);
        each.retain(|_, format| *format != common);
        Self { common, others: each, exceptions: HashMap::new(), all }
    }

    /// The format of the most weights.
    pub(crate) fn common(&self) -> Format {
        self.common
    }

    /// The format of all matrices but the exceptions from an integer format, if they have one.
    pub(crate) fn only(&self) -> Option<Format> {
        self.others.is_empty().then_some(self.common)
    }

    /// The format of a tensor.
    pub(crate) fn of(&self, weight: &str) -> Format {
        self.exceptions.get(weight).or_else(|| self.others.get(weight)).copied().unwrap_or(self.common)
    }

    /// The projections of a linear layer, each run of those that follow each other and have one format as a layer of its own.
    pub(crate) fn runs(&self, linear: &LinearSpec) -> Vec<(LinearSpec, Format)> {
        let format = |part: &PartSpec| self.of(&part.weight());
        let runs = linear.parts.chunk_by(|a, b| format(a) == format(b));
        runs.map(|parts| (LinearSpec { parts: parts.to_vec(), ..linear.clone() }, format(&parts[0])))
            .collect()
    }
}

impl fmt::Display for Formats {
    /// All formats, the most common first: `q4_k+q6_k`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.all.iter().map(Format::to_string).collect();
        f.write_str(&names.join("+"))
    }
}
