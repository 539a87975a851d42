//! Compresses the weights of the embedded models.

#[path = "src/planes.rs"]
mod planes;

use std::error::Error;
use std::path::Path;

/// The models.
const EMBEDDED: &[&str] = &["demo", "demo-diffusion"];

#[expect(clippy::disallowed_methods, reason = "cargo says where to write")]
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/planes.rs");
    for model in EMBEDDED {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
        let weights = models.join(model).join("model.safetensors");
        println!("cargo:rerun-if-changed={}", weights.display());
        let packed =
            planes::pack(&std::fs::read(&weights).map_err(|e| format!("{}: {e}", weights.display()))?)?;
        std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join(format!("{model}.planes")), packed)?;
    }
    Ok(())
}
