//! The tokenizer of a loaded model.

use pyo3::prelude::*;

use crate::engine::Shared;
use crate::error::{Class, Fault};

/// The tokenizer of a loaded model.
#[pyclass(frozen, module = "redline._redline")]
pub(crate) struct Tokenizer {
    pub(crate) loaded: Shared,
}

impl Tokenizer {
    fn tokenizer(&self) -> Result<&redline_tokenizer::Tokenizer, Fault> {
        self.loaded.model.engine.tokenizer().ok_or_else(|| {
            Fault::new(
                Class::Request,
                format!("`{}` has no tokenizer", self.loaded.model.name),
                "give token ids, or add `tokenizer.json`",
            )
        })
    }
}

#[pymethods]
impl Tokenizer {
    /// The token ids of a text.
    #[pyo3(signature = (text, add_special_tokens = true))]
    fn encode(&self, py: Python<'_>, text: &str, add_special_tokens: bool) -> PyResult<Vec<u32>> {
        let engine = &self.loaded.model.engine;
        Ok(py.detach(|| engine.encode(text, add_special_tokens)).map_err(Fault::from)?)
    }

    /// The text of token ids.
    #[pyo3(signature = (ids, skip_special_tokens = true))]
    fn decode(&self, py: Python<'_>, ids: Vec<u32>, skip_special_tokens: bool) -> PyResult<String> {
        let tokenizer = self.tokenizer()?;
        let text = py.detach(|| tokenizer.decode(&ids, skip_special_tokens));
        Ok(text.map_err(|error| Fault::advised(Class::Request, &error, error.hint().map(Into::into)))?)
    }
}
