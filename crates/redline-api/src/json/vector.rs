//! What represents a text, as JSON.

use redline_engine::{Encoded, VectorForm};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::finite::Finite;

/// What represents a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Vector {
    /// One vector.
    Dense(Vec<Finite<f32>>),
    /// Weights of tokens of the vocabulary.
    Sparse(SparseVector),
    /// Vectors of tokens.
    Several(Vec<Vec<Finite<f32>>>),
}

/// Weights of tokens of the vocabulary: those that are not zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SparseVector {
    /// The ids of the tokens, ascending.
    pub indices: Vec<u32>,
    /// Their weights.
    pub values: Vec<Finite<f32>>,
}

impl Vector {
    pub(crate) fn new(form: VectorForm, text: Encoded) -> Self {
        match form {
            VectorForm::Dense => Self::Dense(dense(text)),
            VectorForm::Sparse => {
                Self::Sparse(SparseVector { indices: text.indices.clone(), values: dense(text) })
            }
            VectorForm::MultiVector | VectorForm::States => Self::Several(several(&text)),
        }
    }
}

/// The one vector of a text.
pub(crate) fn dense(text: Encoded) -> Vec<Finite<f32>> {
    text.values.into_iter().map(Finite).collect()
}

/// The vectors of the tokens of a text.
pub(crate) fn several(text: &Encoded) -> Vec<Vec<Finite<f32>>> {
    text.each_vector().map(|vector| vector.iter().copied().map(Finite).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_its_own_shape() {
        let text = || Encoded {
            values: vec![0.5, -1.0, 2.0, 3.0],
            indices: vec![2, 7, 8, 90],
            vectors: 2,
            prompt_tokens: 3,
            truncated: false,
        };
        let json = |form| serde_json::to_string(&Vector::new(form, text())).unwrap();
        assert_eq!(json(VectorForm::Dense), "[0.5,-1.0,2.0,3.0]");
        let sparse = r#"{"indices":[2,7,8,90],"values":[0.5,-1.0,2.0,3.0]}"#;
        assert_eq!(json(VectorForm::Sparse), sparse);
        for form in [VectorForm::MultiVector, VectorForm::States] {
            assert_eq!(json(form), "[[0.5,-1.0],[2.0,3.0]]");
        }
        for form in VectorForm::ALL {
            let vector = Vector::new(*form, text());
            assert_eq!(serde_json::from_str::<Vector>(&json(*form)).unwrap(), vector);
        }
    }
}
