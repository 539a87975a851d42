//! Per-layer inputs.

use super::{Act, Step};

/// The inputs of all layers in a pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerInputRows {
    pub(super) rows: Act,
    /// Values of one layer's input.
    width: usize,
}

impl Step<'_> {
    /// Keeps the per-layer inputs of `layers` layers, side by side in each row.
    pub(crate) fn set_layer_inputs(&mut self, rows: Act, layers: usize) {
        self.layer_inputs = Some(LayerInputRows { rows, width: rows.width / layers.max(1) });
    }

    /// The current layer's per-layer input.
    pub fn layer_input(&self) -> Act {
        let inputs = self.layer_inputs.as_ref().zip(self.layer);
        let (LayerInputRows { rows, width }, layer) = inputs.expect("a layer with an input of its own");
        rows.columns(layer * width, *width)
    }
}
