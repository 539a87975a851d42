//! The order in which masks are filled: the parameters of lines, routes and flags.

use redline_engine::DiffuseRequest;
use redline_settings::{Algorithm, BlockCache};

use crate::json::limits::MAX_GUIDANCE;
use crate::json::named::ByName;
use crate::json::parts::part;
use crate::json::shape;

part! {
    /// The order in which a model fills masks.
    pub struct DiffusionKeys {
        /// For models that fill masks: number of steps; default: one per mask. Of more steps, those that fill nothing are left out.
        #[schemars(range(min = 1))]
        pub steps: usize,
        /// For models that fill masks: which masks are filled first: origin, maskgit-plus, topk-margin, entropy (Dream), low-confidence,
        /// random (LLaDA). Default: entropy for Dream, low-confidence for LLaDA; with a threshold: by probability.
        pub algorithm: ByName<Algorithm>,
        /// For models that fill masks: temperature of the choice between masks; 0 fills the most confident ones first. Default: 0.
        #[schemars(range(min = 0.0))]
        pub alg_temp: f32,
        /// For models that fill masks: the final time of Dream's schedule. Default: 0.001.
        #[schemars(with = "Option<shape::Between>")]
        pub eps: f32,
        /// For models that fill masks: number of masks per block; blocks are filled from left to right. It must divide the number of masks.
        /// Default: one block, or blocks of up to 32 masks with a threshold or a cache.
        #[schemars(range(min = 1))]
        pub block_length: usize,
        /// For models that fill masks: scale of classifier-free guidance, away from the prediction without the prompt; 0 disables it.
        /// Default: 0.
        #[schemars(range(min = 0.0, max = MAX_GUIDANCE))]
        pub cfg_scale: f32,
        /// For models that fill masks: in each pass, fill the most confident mask and all masks whose token has at least this probability
        /// (Fast-dLLM; 0.9 is usual). Faster, but tokens that are chosen together do not depend on each other: measure the quality.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub threshold: f32,
        /// For models that fill masks: within a block, reuse the keys and values that its first pass computed for everything before the
        /// block (prefix) or outside it (dual) (Fast-dLLM). Faster, but an approximation: measure the quality. Default: none.
        pub cache: ByName<BlockCache>,
        /// For models that fill masks: with a cache, run the whole canvas in every Nth pass of a block.
        #[schemars(range(min = 1))]
        pub refresh: usize,
    }
}

impl DiffusionKeys {
    /// Sets the fields of a request. Absent keys change nothing.
    pub fn apply(self, request: &mut DiffuseRequest) {
        fn set<T>(to: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *to = value;
            }
        }
        request.steps = self.steps.or(request.steps);
        request.algorithm = self.algorithm.map(|algorithm| algorithm.0).or(request.algorithm);
        set(&mut request.alg_temp, self.alg_temp);
        set(&mut request.eps, self.eps);
        request.block_length = self.block_length.or(request.block_length);
        set(&mut request.cfg_scale, self.cfg_scale);
        request.threshold = self.threshold.or(request.threshold);
        set(&mut request.cache, self.cache.map(|cache| cache.0));
        request.refresh = self.refresh.or(request.refresh);
    }
}
