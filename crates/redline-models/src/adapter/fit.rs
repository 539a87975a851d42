//! Whether an adapter fits a model, and how much memory it would take.

use redline_kernels::Format;
use redline_weights::{AdapterFiles, Checksum, ConfigFile};

use super::memory;
use super::source::{check_base, read};

use crate::ModelError;
use crate::load::{LoadOptions, Loader, Weights};

/// An adapter that fits a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterFit {
    /// The format of the model's weights.
    pub format: Format,
    /// Bytes that the adapter takes in memory beside them.
    pub bytes: u64,
    /// As [`super::AdapterWeights::digest`].
    pub digest: Checksum,
}

/// Checks an adapter against the model that `config` and `weights` describe. Reads the adapter, but no values of the model other than
/// those that the adapter contains a copy of.
///
/// # Errors
/// The model cannot be loaded with these options, or the adapter does not fit it ([`read`], [`check_base`]).
pub fn fit(
    config: &ConfigFile,
    weights: Weights<'_>,
    options: LoadOptions,
    files: &AdapterFiles,
    max_rank: usize,
) -> Result<AdapterFit, ModelError> {
    let loader = Loader::new(config, weights, options)?;
    let adapter = read(loader.spec(), files, max_rank)?;
    if let Weights::Checkpoint(checkpoint) = weights {
        check_base(loader.spec(), files, max_rank, checkpoint)?;
    }
    let bytes = memory::bytes(loader.footprint(), loader.spec(), &adapter);
    Ok(AdapterFit { format: loader.format(), bytes, digest: adapter.digest })
}
