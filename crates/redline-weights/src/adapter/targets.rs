//! Which modules an adapter targets, by the rules of PEFT's `check_target_module_exists`.

use std::collections::BTreeSet;

use super::fault::AdapterFault;
use super::pattern::Expression;

/// Names of modules, or an expression.
#[derive(Debug, Clone)]
pub(super) enum Names {
    /// A module is named if its path is in the list, or ends with a dot and an entry.
    List(BTreeSet<String>),
    /// A module is named if the expression matches its whole path.
    Matching(Expression),
    /// Every linear layer but the head.
    AllLinear,
}

impl Names {
    /// Whether the path itself is named.
    fn exactly(&self, module: &str) -> bool {
        matches!(self, Self::List(list) if list.contains(module))
    }

    fn contains(&self, module: &str, linear: bool) -> Result<bool, AdapterFault> {
        Ok(match self {
            Self::List(list) => {
                let mut ends = module.match_indices('.').map(|(dot, _)| &module[dot + 1..]);
                list.contains(module) || ends.any(|end| list.contains(end))
            }
            Self::Matching(expression) => expression.matches(module)?,
            Self::AllLinear => linear,
        })
    }
}

/// The rules for modules of one adapter.
#[derive(Debug, Clone)]
pub(super) struct Targets {
    pub(super) named: Names,
    pub(super) excluded: Option<Names>,
    /// `layers_to_transform`; empty if every layer is adapted.
    pub(super) layers: BTreeSet<usize>,
    /// `layers_pattern`.
    pub(super) layer_names: Vec<Expression>,
}

impl Targets {
    /// Whether the module of this path is adapted; `linear` says whether it is a linear layer other than the head.
    pub(super) fn contain(&self, module: &str, linear: bool) -> Result<bool, AdapterFault> {
        if let Some(excluded) = &self.excluded
            && excluded.contains(module, linear)?
        {
            return Ok(false);
        }
        if !self.named.contains(module, linear)? {
            return Ok(false);
        }
        // A path that is listed completely is adapted in whichever layer it is.
        if self.layers.is_empty() || self.named.exactly(module) {
            return Ok(true);
        }
        Ok(self.layer_of(module)?.is_some_and(|layer| self.layers.contains(&layer)))
    }

    /// The index of the layer that the module is in.
    fn layer_of(&self, module: &str) -> Result<Option<usize>, AdapterFault> {
        if self.layer_names.is_empty() {
            // `re.match(r".*?\.[^.]*\.(?P<idx>\d+)\.", module)`: the first number after two parts and before another.
            let parts: Vec<&str> = module.split('.').collect();
            let inner = parts.get(2..parts.len().saturating_sub(1)).unwrap_or_default();
            let digits = |part: &&&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            return Ok(inner.iter().find(digits).and_then(|part| part.parse().ok()));
        }
        for name in &self.layer_names {
            // The first that matches decides, even if it has no index.
            if name.matches(module)? {
                return name.index(module);
            }
        }
        Ok(None)
    }
}
