//! x
use crate::{AddedToken, Encoding, TokenizerError, backend::Source};
pub(crate) struct Native(());
impl Native {
    pub(crate) fn new(_: Source<'_>) -> Result<Self, String> {
        Err("not yet".into())
    }
    pub(crate) fn encode(&self, _: &str) -> Result<Vec<u32>, TokenizerError> {
        Ok(vec![])
    }
    pub(crate) fn encode_with_offsets(&self, _: &str) -> Result<Encoding, TokenizerError> {
        Ok(Encoding::default())
    }
    pub(crate) fn decoded_form(&self, _: &AddedToken) -> Option<String> {
        None
    }
}
