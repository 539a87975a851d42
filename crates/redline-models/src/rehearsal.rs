//! Runs linear layers on their own, so that their variants can be timed.

use redline_kernels::op::linear::{Epilogue, Variant, linear};
use redline_kernels::{Exec, Matrix, Rows, RowsMut};

use crate::element::linear::Linear;
use crate::model::Model;
use crate::plan::{Plan, Site};
use crate::step::{Arena, ArenaPart, padded};

impl Model {
    /// The weights at a site in the given layer, modulo the number of layers, or in the first one after it that has the site.
    fn matrices_at(&self, site: Site, layer: usize) -> &[Matrix] {
        if site == Site::Head {
            return std::slice::from_ref(self.head());
        }
        let layers = self.decoder.layers.iter().cycle().skip(layer.checked_rem(self.layers()).unwrap_or(0));
        layers.take(self.layers()).find_map(|layer| layer.first(site)).map_or(&[], Linear::matrices)
    }

    /// The largest of them.
    fn matrix_at(&self, site: Site, layer: usize) -> Option<&Matrix> {
        self.matrices_at(site, layer).iter().max_by_key(|matrix| matrix.bytes())
    }

    /// The variants worth measuring at a site for up to `rows` rows, the estimate first.
    pub fn candidates(&self, exec: Exec<'_>, site: Site, rows: usize) -> Vec<Variant> {
        let threads = exec.team.size();
        self.matrix_at(site, 0).map(|m| Variant::candidates(exec.simd, m, rows, threads)).unwrap_or_default()
    }

    /// The plan that needs no measuring.
    pub fn estimated(&self, exec: Exec<'_>, sites: &[Site], rows: usize) -> Plan {
        let of = |&site: &Site| Some((site, Variant::estimate(exec.simd, self.matrix_at(site, 0)?, rows)));
        Plan::new(sites.iter().filter_map(of).collect())
    }

    /// Runs the linear layer at a site once, over `rows` rows of arbitrary inputs, so that it can be timed. Different layers
    /// have different weights, so these come from the same level of memory as in a pass. `rows` must not exceed the size of the
    /// arena.
    pub fn rehearse(
        &self,
        exec: Exec<'_>,
        arena: &mut Arena,
        site: Site,
        layer: usize,
        rows: usize,
        variant: Variant,
    ) {
        for matrix in self.matrices_at(site, layer) {
            let (width, outputs) = (padded(matrix.cols()), padded(matrix.rows()));
            let ArenaPart { values, words, .. } = arena.whole();
            let (x, y) = values.split_at_mut(rows * width);
            for (i, value) in x.iter_mut().enumerate() {
                *value = (i % 127) as f32 / 64.0 - 1.0;
            }
            let x = Rows::new(x, rows, matrix.cols(), width);
            let y = &mut RowsMut::new(&mut y[..rows * outputs], rows, matrix.rows(), outputs);
            linear(exec, matrix, x, y, Epilogue::default(), variant, words);
        }
    }
}
