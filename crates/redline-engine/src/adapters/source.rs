//! Where adapters are read from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redline_kernels::{Simd, with_team};
use redline_models::adapter::{Adapter, AdapterBuilder, check_base, read};
use redline_weights::{AdapterFiles, Checkpoint, Checksum, Infq};

use crate::error::EngineError;

/// Reads and packs adapters.
pub(crate) trait AdapterSource: Send + Sync {
    /// Reads the adapter in `dir`.
    fn read(&self, dir: &Path) -> Result<ReadAdapter, EngineError>;
}

/// An adapter that was read.
pub(crate) struct ReadAdapter {
    /// Checksum of the adapter as PEFT wrote it. A converted adapter states that of its source, unchecked.
    pub(crate) digest: Checksum,
    /// Checksum of the values that were read. It is part of the keys of the prefix cache.
    pub(crate) identity: Checksum,
    pub(crate) adapter: Arc<Adapter>,
}

/// Directories with adapters of a model, as PEFT wrote them or converted.
pub(crate) struct Directories {
    pub(crate) builder: AdapterBuilder,
    /// The checkpoint of the base, if it has one: adapters may contain copies of its embedding, which must be the same.
    pub(crate) base: Option<PathBuf>,
    pub(crate) simd: Simd,
    pub(crate) max_rank: usize,
}

impl AdapterSource for Directories {
    fn read(&self, dir: &Path) -> Result<ReadAdapter, EngineError> {
        if Infq::is(dir) {
            let infq = Infq::open(dir)?;
            let (digest, adapter) = self.builder.load(&infq, self.max_rank)?;
            return Ok(ReadAdapter { digest, identity: infq.digest(), adapter: Arc::new(adapter) });
        }
        let files = AdapterFiles::open(dir)?;
        let spec = self.builder.spec();
        let weights = read(spec, &files, self.max_rank)?;
        if let Some(base) = &self.base {
            check_base(spec, &files, self.max_rank, &Checkpoint::open(base)?)?;
        }
        // On a thread of its own, because packing rounds values and needs the default rounding mode.
        let built = with_team(self.simd, 1, |exec| self.builder.build(exec, &weights));
        let built = built.map_err(|e| EngineError::Threads { threads: 1, reason: e.to_string() })?;
        let adapter = Arc::new(built.map_err(|_| EngineError::Stopped)??);
        Ok(ReadAdapter { digest: weights.digest, identity: weights.digest, adapter })
    }
}
