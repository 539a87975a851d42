//! Options that all kinds of requests have.

use crate::adapter::AdapterNames;
use crate::json::parts::part;
use crate::json::shape;
use crate::receipt::document::ReceiptChoice;

part! {
    /// The options of a request, whatever it asks for.
    pub struct RequestOptions {
        /// The adapters, applied one after the other: a name, or a list of names and of objects with `name` and `scale`; `base` for none.
        pub adapter: AdapterNames,
        /// Only requests with the same salt share entries of the prefix cache.
        #[schemars(with = "Option<shape::Salt>")]
        pub cache_salt: String,
        /// Time limit in seconds.
        #[schemars(with = "Option<shape::Seconds>")]
        pub timeout_s: f64,
        /// Ask for a receipt: `true`, or an object with the `layers` to have digests of.
        pub receipt: ReceiptChoice,
    }
}
