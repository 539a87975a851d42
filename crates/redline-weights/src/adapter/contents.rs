//! What an adapter contains, told from its files alone.

use super::files::AdapterFiles;
use super::fit::{BaseModule, ModuleKind};
use super::names::{Part, Parts};
use crate::checksum::{Checksum, Hash};
use crate::error::Result;
use crate::safetensors::TensorInfo;

/// An adapted module as the files describe it.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterModule {
    /// The module that it needs in a model.
    pub base: BaseModule,
    /// Rows of A and columns of B.
    pub rank: usize,
    /// The numerator of the scaling.
    pub alpha: f64,
    /// The factor on B A.
    pub scaling: f32,
    /// Values of A, B and the magnitudes; copies of base weights are not counted.
    pub parameters: u64,
    /// Bytes of all its tensors in the file.
    pub bytes: u64,
    /// The names of the types of its tensors, each once, in the order A, B, magnitudes.
    pub dtypes: Vec<String>,
}

impl AdapterFiles {
    /// The modules by their paths.
    ///
    /// # Errors
    /// Configuration and tensors contradict each other: those faults of [`Self::fit`] that need no model.
    pub fn contents(&self) -> Result<Vec<AdapterModule>> {
        let bases: Vec<BaseModule> =
            self.parts().iter().map(|(path, parts)| self.base(path, parts)).collect();
        let fitted = self.fit(&bases, usize::MAX)?;
        let module = |(fitted, base): (&super::FittedModule<'_>, &BaseModule)| {
            let path = base.path.as_str();
            let mut module = AdapterModule {
                base: base.clone(),
                rank: fitted.rank,
                alpha: self.config().alpha(path)?,
                scaling: fitted.scaling,
                parameters: 0,
                bytes: 0,
                dtypes: Vec::new(),
            };
            let names = self.parts().get(path).into_iter().flatten();
            for (part, info) in names.filter_map(|(part, name)| Some((part, self.info(name)?))) {
                module.bytes += info.bytes();
                if *part == Part::Base {
                    continue;
                }
                module.parameters += info.elements() as u64;
                let dtype = info.dtype.to_string();
                if !module.dtypes.contains(&dtype) {
                    module.dtypes.push(dtype);
                }
            }
            Ok(module)
        };
        fitted.iter().map(|fitted| (fitted, &bases[fitted.module])).map(module).collect()
    }

    /// Identifies the adapter by its files: a hash over the paths, ranks and factors of its modules, and over names, types, shapes
    /// and bytes of its tensors. Reads everything.
    ///
    /// # Errors
    /// As for [`Self::contents`].
    pub fn digest(&self) -> Result<Checksum> {
        let mut hash = Hash::new();
        for AdapterModule { base, rank, scaling, .. } in self.contents()? {
            for number in [base.path.len(), rank] {
                hash.write(&(number as u64).to_le_bytes());
            }
            hash.write(&scaling.to_le_bytes());
            hash.write(base.path.as_bytes());
        }
        hash.write(self.tensors().digest()?.to_string().as_bytes());
        Ok(hash.checksum())
    }

    /// The module that these tensors adapt. A copy of the base weight beside a linear update shows that it is a head.
    fn base(&self, path: &str, parts: &Parts) -> BaseModule {
        let size = |part: Part, at: usize| {
            let info = parts.get(&part).and_then(|name| self.info(name));
            info.and_then(|info| info.shape.get(at)).copied().unwrap_or(0)
        };
        let (kind, a, b) = if parts.contains_key(&Part::EmbeddingA) {
            (ModuleKind::Embedding, Part::EmbeddingA, Part::EmbeddingB)
        } else if parts.contains_key(&Part::Base) {
            (ModuleKind::Head, Part::A, Part::B)
        } else {
            (ModuleKind::Linear, Part::A, Part::B)
        };
        BaseModule { path: path.to_owned(), kind, inputs: size(a, 1), outputs: size(b, 0) }
    }

    fn info(&self, tensor: &str) -> Option<&TensorInfo> {
        self.tensors().info(tensor)
    }
}
