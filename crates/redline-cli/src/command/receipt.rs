//! The flags that ask for a receipt, and the file that it is written to.

use std::path::PathBuf;

use clap::Args;
use redline_api::receipt;
use redline_engine::{Receipt, ReceiptOptions};

use crate::message::{self, Failure};
use crate::{output, value};

/// Whether a receipt is written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Receipt")]
pub(super) struct ReceiptFlags {
    /// Write a receipt to this file: what was asked and answered, with digests of what the layers computed. `redline verify` confirms it,
    /// also on other machines. The first one of a process reads the model's weights once more. (A line of --jsonl asks for one with its
    /// key receipt)
    #[arg(long, value_name = "FILE", conflicts_with = "jsonl")]
    receipt: Option<PathBuf>,
    /// With --receipt: only these layers, counted from 0; default: all
    #[arg(long, value_name = "0,5,11", value_parser = value::layers, requires = "receipt", conflicts_with = "jsonl")]
    receipt_layers: Option<value::Layers>,
}

impl ReceiptFlags {
    /// What the request asks for.
    pub(super) fn options(&self) -> Option<ReceiptOptions> {
        let layers = self.receipt_layers.clone().map(|layers| layers.0);
        self.receipt.as_ref().map(|_| ReceiptOptions { layers, ..ReceiptOptions::default() })
    }

    /// Writes the receipt. There is none of a request that was interrupted.
    pub(super) fn write(&self, receipt: Option<&Receipt>) -> Result<(), Failure> {
        let Some(path) = &self.receipt else { return Ok(()) };
        let Some(receipt) = receipt else {
            message::note("the request was interrupted: there is no receipt");
            return Ok(());
        };
        let mut document = output::json(&receipt::document(receipt.clone()))?;
        document.push('\n');
        output::file(path, "--receipt", &document)
    }
}
