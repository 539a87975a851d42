//! The digests of the layers, for the requests that asked for a receipt.

use redline_models::row_digests::RowDigests;

use super::{Core, Wanted};
use crate::heartbeat::machine::Machine;
use crate::receipt::Recorder;

impl<M: Machine> Core<M> {
    /// Room for the digests of a pass: one for each wanted row of a request with a receipt, after every layer that such a request chose.
    /// `None` if no request has a receipt.
    pub(super) fn digests(&self, (rows, wanted): (&[usize], &[Wanted])) -> Option<RowDigests> {
        let (mut recorded, mut layers, mut last) = (Vec::new(), Vec::new(), None);
        for (wanted, recorder) in self.recorded(wanted) {
            recorded.push(rows[wanted.index]);
            if last.replace(wanted.task) != Some(wanted.task) {
                layers.extend_from_slice(recorder.layers());
            }
        }
        recorded.sort_unstable();
        layers.sort_unstable();
        layers.dedup();
        (!recorded.is_empty()).then(|| RowDigests::new(layers, recorded))
    }

    /// Gives the digests of a pass to the requests.
    pub(super) fn record(&self, digests: Option<&RowDigests>, (rows, wanted): (&[usize], &[Wanted])) {
        let Some(digests) = digests else { return };
        for (wanted, recorder) in self.recorded(wanted) {
            recorder.add(digests, rows[wanted.index]);
        }
    }

    /// The rows of requests with a receipt.
    fn recorded<'a>(&'a self, wanted: &'a [Wanted]) -> impl Iterator<Item = (&'a Wanted, &'a Recorder)> + 'a {
        wanted.iter().filter_map(|wanted| Some((wanted, self.tasks.get(&wanted.task)?.recorder.as_deref()?)))
    }
}
