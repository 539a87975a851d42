//! Checks of the repository's invariants.

mod edges;
#[cfg(test)]
mod examples;
mod layout;
mod lexer;
mod lists;
mod models;
mod modules;
mod places;
mod sizes;
mod source;
mod text;
mod tree;

use anyhow::anyhow;

use crate::Failure;
use tree::{Findings, Tree};

/// One invariant.
struct Check {
    name: &'static str,
    run: fn(&Tree) -> Findings,
}

impl Check {
    /// Runs it on the whole repository, where everything that the rule names must exist.
    fn on_repository(&self, tree: &Tree) -> Findings {
        let mut findings = (self.run)(tree);
        for place in std::mem::take(&mut findings.absent) {
            findings.broken(&place, 0, "is named by this rule, but does not exist");
        }
        findings
    }
}

/// Every invariant.
const CHECKS: &[Check] = &[
    Check { name: "edges", run: edges::edges },
    Check { name: "serde", run: edges::serde },
    Check { name: "instructions", run: places::instructions },
    Check { name: "unsafe", run: places::unsafe_code },
    Check { name: "engine", run: places::engine },
    Check { name: "writes", run: places::writes },
    Check { name: "front-ends", run: places::front_ends },
    Check { name: "network", run: places::network },
    Check { name: "connections", run: edges::connections },
    Check { name: "same-bits", run: places::same_bits },
    Check { name: "architectures", run: models::architectures },
    Check { name: "circles", run: modules::circles },
    Check { name: "type-names", run: modules::type_names },
    Check { name: "forward", run: models::forward },
    Check { name: "lists", run: lists::lists },
    Check { name: "module-docs", run: text::module_docs },
    Check { name: "feature-cfgs", run: text::feature_cfgs },
    Check { name: "unfinished", run: text::unfinished },
    Check { name: "language", run: text::language },
    Check { name: "names", run: layout::names },
    Check { name: "documents", run: layout::documents },
    Check { name: "test-binaries", run: layout::test_binaries },
    Check { name: "lines", run: sizes::lines },
    Check { name: "width", run: sizes::width },
    Check { name: "bytes", run: sizes::bytes },
];

/// `cargo xtask tidy`: reports what each check examined, and every violation.
pub(crate) fn command(_: &[String]) -> Result<(), Failure> {
    let tree = Tree::read(crate::root())?;
    let mut broken = 0;
    for check in CHECKS {
        let findings = check.on_repository(&tree);
        let verdict = if findings.violations.is_empty() { "ok" } else { "BROKEN" };
        println!("{verdict:<7}{:<14} {} looked at{}", check.name, findings.seen, findings.left_out);
        for violation in &findings.violations {
            println!("       {violation}");
        }
        broken += findings.violations.len();
    }
    if broken > 0 {
        return Err(
            anyhow!("{broken} places break the rules of the house; CONTRIBUTING.md explains them").into()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let tree = Tree::read(crate::root()).expect("the repository can be read");
        let of = |check: &Check| {
            let violations = check.on_repository(&tree).violations;
            violations.into_iter().map(|v| format!("{}: {v}", check.name)).collect::<Vec<_>>()
        };
        let broken: Vec<String> = CHECKS.iter().flat_map(of).collect();
        assert!(broken.is_empty(), "broken rules:\n  {}", broken.join("\n  "));
    }
}
