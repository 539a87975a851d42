//! The classes of a model that was trained to classify.

use redline_weights::ConfigFile;

use crate::ModelError;

/// Maximum number of classes.
const MAX: usize = 1 << 16;

/// The names of the classes, in the order of the outputs: `id2label`, or `LABEL_0` to `LABEL_<num_labels - 1>`. As in the reference,
/// there are two if nothing is said.
pub(crate) fn read(config: &ConfigFile) -> Result<Vec<String>, ModelError> {
    let Some(names) = config.object("id2label")? else {
        let count = config.usize_or("num_labels", 2)?;
        if !(1..=MAX).contains(&count) {
            return Err(config.refuse("num_labels", format!("a number from 1 to {MAX}")).into());
        }
        return Ok((0..count).map(|id| format!("LABEL_{id}")).collect());
    };
    let count = names.keys().count();
    if !(1..=MAX).contains(&count) {
        return Err(config.refuse("id2label", format!("1 to {MAX} classes")).into());
    }
    (0..count).map(|id| Ok(names.str(&id.to_string())?.to_owned())).collect()
}
