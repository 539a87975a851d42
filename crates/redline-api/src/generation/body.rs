//! What the bodies of the routes for generated text have in common.

/// The body of a route for generated text: its own fields, those of all of these routes, and those that concern the order in which masks
/// are filled.
macro_rules! generation_body {
    ($(#[$of:meta])* pub struct $request:ident { $($(#[$field_of:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$of])*
        pub struct $request {
            $($(#[$field_of])* pub $field: $kind,)*
            /// The model's name.
            pub model: Option<String>,
            /// The adapters, applied one after the other.
            pub adapter: Option<$crate::adapter::AdapterNames>,
            /// Temperature; 0 is greedy.
            #[schemars(range(min = 0.0, max = crate::json::limits::MAX_TEMPERATURE))]
            pub temperature: Option<f32>,
            /// Keep the smallest set of tokens whose probability reaches this.
            #[schemars(with = "Option<crate::json::shape::ShareAboveZero>")]
            pub top_p: Option<f32>,
            /// Keep the k most probable tokens; 0 and -1 keep all.
            #[schemars(range(min = -1, max = crate::json::limits::MAX_TOP_K))]
            pub top_k: Option<i64>,
            /// Drop tokens below this share of the most probable one.
            #[schemars(range(min = 0.0, max = 1.0))]
            pub min_p: Option<f32>,
            /// Seed of the random numbers; a negative one stands for its two's complement.
            pub seed: Option<i64>,
            /// Whether to send the answer as events while it is generated.
            pub stream: Option<bool>,
            /// What the events contain.
            pub stream_options: Option<$crate::generation::stream::StreamOptions>,
            /// Continue after an end-of-sequence token.
            pub ignore_eos: Option<bool>,
            /// Only requests with the same salt share cached prefixes.
            #[schemars(with = "Option<crate::json::shape::Salt>")]
            pub cache_salt: Option<String>,
            /// Time limit in seconds.
            #[schemars(with = "Option<crate::json::shape::Seconds>")]
            pub timeout_s: Option<f64>,
            /// Ask for a receipt: `true`, or an object with the `layers` to have digests of.
            pub receipt: Option<$crate::receipt::document::ReceiptChoice>,
            /// Names the end user. A response repeats it; it changes nothing else.
            pub user: Option<String>,
            /// For models that fill masks: number of steps; one per mask by default.
            #[schemars(range(min = 1))]
            pub steps: Option<usize>,
            /// For models that fill masks: which masks are filled first.
            #[serde(default, with = "crate::json::named::optional")]
            #[schemars(with = "Option<crate::json::named::OneOf<redline_settings::Algorithm>>")]
            pub algorithm: Option<redline_settings::Algorithm>,
            /// For models that fill masks: temperature of the choice between masks; 0 fills the most confident ones first.
            #[schemars(range(min = 0.0))]
            pub alg_temp: Option<f32>,
            /// For models that fill masks: the final time of Dream's schedule.
            #[schemars(with = "Option<crate::json::shape::Between>")]
            pub eps: Option<f32>,
            /// For models that fill masks: number of masks per block; blocks are filled from left to right.
            #[schemars(range(min = 1))]
            pub block_length: Option<usize>,
            /// For models that fill masks: strength of classifier-free guidance.
            #[schemars(range(min = 0.0, max = crate::json::limits::MAX_GUIDANCE))]
            pub cfg_scale: Option<f32>,
            /// For models that fill masks: in each pass, fill every mask whose token has at least this probability.
            #[schemars(range(min = 0.0, max = 1.0))]
            pub threshold: Option<f32>,
            /// For models that fill masks: what is cached within a block.
            #[serde(default, with = "crate::json::named::optional")]
            #[schemars(with = "Option<crate::json::named::OneOf<redline_settings::BlockCache>>")]
            pub cache: Option<redline_settings::BlockCache>,
            /// For models that fill masks: number of passes over a block between two passes over the whole canvas.
            #[schemars(range(min = 1))]
            pub refresh: Option<usize>,
        }

        $crate::jsonl::diffuse::diffusion_keys!($request);
    };
}

pub(crate) use generation_body;
