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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_names_its_commit_its_compiler_and_its_profile() {
        let Build { name, version, git, rustc, profile, .. } = build();
        assert_eq!((name.as_str(), version.as_deref()), ("redline", Some(VERSION)));
        assert!(git.is_none_or(|git| git.len() >= 40 && git.bytes().all(|b| b.is_ascii_hexdigit())));
        assert!(rustc.is_none_or(|rustc| rustc.starts_with("rustc ")));
        assert_eq!(profile.as_deref(), Some(if cfg!(debug_assertions) { "dev" } else { "release" }));
    }
}
