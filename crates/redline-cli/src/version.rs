//! The build of this binary, as recorded by the build script.

use redline_lab::run::Build;

/// The version of this binary.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the build of this binary.
pub(crate) fn build() -> Build {
    let text = |value: Option<&str>| value.map(ToOwned::to_owned);
    Build {
        name: "redline".to_owned(),
        version: Some(VERSION.to_owned()),
        git: text(option_env!("REDLINE_BUILT_FROM")),
        dirty: option_env!("REDLINE_BUILT_DIRTY").map(|dirty| dirty == "true"),
        rustc: text(option_env!("REDLINE_BUILT_BY")),
        profile: Some(if cfg!(debug_assertions) { "dev" } else { "release" }.to_owned()),
    }
}
