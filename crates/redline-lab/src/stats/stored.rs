//! Samples with their summary, as written to files.

use serde::{Deserialize, Serialize, Serializer};

use super::{Direction, NotFinite, Samples, sorted};

/// The fields that are read; the others are computed from them.
#[derive(Deserialize)]
pub(super) struct Stored {
    unit: String,
    direction: Direction,
    samples: Vec<f64>,
    processes: Option<Vec<Vec<f64>>>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum BadMetric {
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
    #[error("`processes` ({processes} values) holds not the values of `samples` ({samples} values)")]
    Processes { processes: usize, samples: usize },
}

impl TryFrom<Stored> for Samples {
    type Error = BadMetric;

    fn try_from(stored: Stored) -> Result<Self, BadMetric> {
        let processes = stored.processes.unwrap_or_else(|| vec![stored.samples.clone()]);
        let all = processes.concat();
        if sorted(&all) != sorted(&stored.samples) {
            return Err(BadMetric::Processes { processes: all.len(), samples: stored.samples.len() });
        }
        Ok(Self::by_process(stored.unit, stored.direction, &processes)?)
    }
}

impl Serialize for Samples {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            unit: &'a str,
            direction: Direction,
            median: Option<f64>,
            mean: Option<f64>,
            std: Option<f64>,
            min: Option<f64>,
            max: Option<f64>,
            n: usize,
            samples: &'a [f64],
            headline: Option<f64>,
            processes: Vec<&'a [f64]>,
        }
        // A process without values keeps its place, so that the others keep their numbers.
        let mut processes = vec![&[][..]; self.numbers.last().map_or(0, |last| last + 1)];
        for (&number, values) in self.numbers.iter().zip(self.processes()) {
            processes[number] = values;
        }
        let (unit, direction, samples, headline) =
            (self.unit(), self.direction, self.values(), self.headline());
        let (median, mean, std, min, max) = (self.median(), self.mean(), self.std(), self.min(), self.max());
        let n = self.n();
        Written { unit, direction, median, mean, std, min, max, n, samples, headline, processes }
            .serialize(to)
    }
}
