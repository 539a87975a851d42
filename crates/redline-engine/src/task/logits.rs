//! The values of rows as a request reads them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use redline_kernels::{Exec, Rows, Team};

/// Logits or states of some rows.
#[derive(Clone, Copy)]
pub(crate) struct Logits<'a> {
    /// Threads and instructions for processing the logits.
    pub(crate) exec: Exec<'a>,
    pub(crate) rows: Rows<'a>,
    /// `ln(sum e^logit)` of every row; 0 unless it was requested for one of the rows that are read together.
    pub(crate) log_sum_exp: &'a [f64],
}

/// Logits of one row, over the whole vocabulary or over labels.
#[derive(Clone, Copy)]
pub(crate) struct LogitsRow<'a> {
    pub(crate) logits: &'a [f32],
    pub(crate) log_sum_exp: f64,
}

impl<'a> Logits<'a> {
    /// Row `r`.
    pub(crate) fn row(&self, r: usize) -> LogitsRow<'a> {
        LogitsRow { logits: self.rows.row(r), log_sum_exp: self.log_sum_exp[r] }
    }

    /// Calls `work` for every item, which reads some of the rows. If they are enough, the threads of the team take one item after the
    /// other. `work` gets a number below the size of the team, which no other thread gets meanwhile, and the rows, which one thread reads.
    pub(crate) fn divide<T: Send>(
        &self,
        items: impl ExactSizeIterator<Item = T>,
        work: impl Fn(usize, Logits<'_>, T) + Sync,
    ) {
        let values = items.len().saturating_mul(self.rows.width());
        if items.len() < 2 || values < MIN_SHARED_VALUES || self.exec.team.size() < 2 {
            return items.for_each(|item| work(0, *self, item));
        }
        let (&Self { rows, log_sum_exp, .. }, simd) = (self, self.exec.simd);
        let items: Vec<Mutex<Option<T>>> = items.map(|item| Mutex::new(Some(item))).collect();
        let next = AtomicUsize::new(0);
        let progress = self.exec.team.progress();
        self.exec.team.run_long(|call| {
            let team = Team::single(progress.clone());
            let logits = Logits { exec: Exec { simd, team: &team }, rows, log_sum_exp };
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Some(item) = item.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    work(call, logits, item);
                }
            }
        });
    }

    /// The given range of rows.
    pub(crate) fn some(&self, rows: std::ops::Range<usize>) -> Self {
        Self { rows: self.rows.some(rows.clone()), log_sum_exp: &self.log_sum_exp[rows], ..*self }
    }
}

/// Minimum number of values of rows that several threads share.
const MIN_SHARED_VALUES: usize = 1 << 14;
