//! Keys of plans: shapes, formats, machine, threads and version. Weight values are not part of the key, so a fine-tuned model
//! shares the plans of its base.

use redline_kernels::Simd;
use redline_kernels::op::kv::KvFormat;
use redline_models::Model;
use redline_weights::{Checksum, Fields};

use super::bucket::Bucket;

/// The fields that all plans of an engine share.
pub(crate) struct PlanEnvironment(Fields);

/// The key of one plan.
pub(super) struct Key {
    bucket: Bucket,
    fields: Fields,
}

impl PlanEnvironment {
    pub(crate) fn new(
        model: &Model,
        kv_format: KvFormat,
        simd: Simd,
        threads: usize,
        devices: usize,
    ) -> Self {
        let field = |name: &str, value: String| (name.to_owned(), value);
        Self(Fields::from([
            field("engine", env!("CARGO_PKG_VERSION").to_owned()),
            field("shapes", Checksum::of(model.shapes().as_bytes()).to_string()),
            field("format", model.facts().formats.clone()),
            field("kv_format", kv_format.name().to_owned()),
            field("isa", simd.name().to_owned()),
            field("processor", redline_kernels::processor()),
            field("threads", threads.to_string()),
            field("tp", devices.to_string()),
        ]))
    }
}

impl Key {
    pub(super) fn new(environment: &PlanEnvironment, bucket: Bucket) -> Self {
        let mut fields = environment.0.clone();
        fields.insert("mode".into(), bucket.mode.name().into());
        fields.insert("rows".into(), bucket.size.to_string());
        Self { bucket, fields }
    }

    pub(super) fn bucket(&self) -> Bucket {
        self.bucket
    }

    pub(super) fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The fields in which the most similar of `stored` differs, with both values; empty if `stored` is empty.
    pub(super) fn nearest(&self, stored: &[Fields]) -> String {
        let differences = |other: &Fields| -> Vec<String> {
            let differing = self.fields.iter().filter(|(name, value)| other.get(*name) != Some(*value));
            let stored = |name| other.get(name).map_or("without", String::as_str);
            differing.map(|(name, value)| format!("{name} {value}, stored {}", stored(name))).collect()
        };
        // Among equally many differences, the first in alphabetical order, independent of the order in the directory.
        let nearest = stored.iter().map(differences).min_by_key(|found| (found.len(), found.join("; ")));
        nearest.map(|found| found.join("; ")).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::BucketMode;

    fn environment(threads: &str, isa: &str) -> PlanEnvironment {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        PlanEnvironment(Fields::from([field("isa", isa), field("threads", threads)]))
    }

    #[test]
    fn a_miss_names_what_differs() {
        let bucket = |size| Bucket { mode: BucketMode::Pass, size };
        let key = |threads, isa, size| Key::new(&environment(threads, isa), bucket(size));
        let stored = [key("1", "avx2", 64).fields, key("1", "avx512", 64).fields];
        assert_eq!(key("2", "avx512", 64).nearest(&stored), "threads 2, stored 1");
        assert_eq!(key("2", "avx512", 128).nearest(&stored), "rows 128, stored 64; threads 2, stored 1");
        assert_eq!(key("2", "avx512", 128).nearest(&[]), "");
        assert_eq!(key("1", "avx512", 64).fields, stored[1]);
        assert!(key("1", "a", 1).nearest(&[Fields::new()]).contains("stored without"));
    }

    #[test]
    fn of_equally_similar_plans_the_first_in_the_alphabet_is_told() {
        let key = |threads| {
            Key::new(&environment(threads, "avx2"), Bucket { mode: BucketMode::Pass, size: 64 }).fields
        };
        let asked = Key::new(&environment("2", "avx2"), Bucket { mode: BucketMode::Pass, size: 64 });
        for stored in [["1", "3"], ["3", "1"]] {
            assert_eq!(asked.nearest(&stored.map(key)), "threads 2, stored 1");
        }
    }
}
