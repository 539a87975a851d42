//! Projects relative position embeddings.

use redline_kernels::op::attention::DistanceTable;
use redline_kernels::op::linear::{Epilogue, Variant, linear, scratch_words};
use redline_kernels::{Buffer, Exec, Matrix, Rows, RowsMut};

use crate::ModelError;
use crate::block::Loaded;
use crate::block::layer::Layer;
use crate::element::distance::{Relative, RelativeSpec, relative_format};
use crate::element::linear::Linear;
use crate::plan::Site;
use crate::step::padded;
use crate::tensors::check_magnitude;

/// Projects the embeddings, `[2 * buckets_per_side, hidden]`, by every layer, in the arithmetic of a pass.
pub(super) fn relative(
    exec: Exec<'_>,
    spec: &RelativeSpec,
    context: usize,
    embeddings: &[f32],
    layers: &[Layer<Loaded>],
) -> Result<Relative, ModelError> {
    let buckets = DistanceTable::new(1, context, |_, distance| spec.bucket(distance) as u32)?;
    let rows = Rows::new(embeddings, 2 * spec.buckets_per_side, spec.hidden, spec.hidden);
    let layers = layers.iter().map(|layer| projected(exec, spec, layer.at(Site::Qkv), rows));
    Ok(Relative { buckets, layers: layers.collect::<Result<_, _>>()? })
}

/// What the queries and the keys of each head are multiplied with: keys of the embeddings, and queries of them.
fn projected(
    exec: Exec<'_>,
    spec: &RelativeSpec,
    qkv: &Linear,
    x: Rows<'_>,
) -> Result<Vec<[Matrix; 2]>, ModelError> {
    let (count, stride) = (x.rows(), padded(qkv.outputs()));
    let mut y = Buffer::zeroed(count * stride)?;
    let mut first = 0;
    for matrix in qkv.matrices() {
        let mut scratch = Buffer::zeroed(scratch_words(matrix.shape(), count))?;
        let mut to = RowsMut::new(&mut y[first..], count, matrix.rows(), stride);
        let epilogue = Epilogue { bias: qkv.bias().map(|bias| &bias[first..]), ..Epilogue::default() };
        linear(exec, matrix, x, &mut to, epilogue, Variant::estimate(exec.simd, matrix, count), &mut scratch);
        first += matrix.rows();
    }
    let shape = spec.matrix(relative_format(qkv.matrices()[0].format()));
    let mut values = vec![0.0; count * shape.cols];
    let mut of_columns = |first: usize| {
        for (to, row) in values.chunks_exact_mut(shape.cols).zip(y.chunks_exact(stride)) {
            to.copy_from_slice(&row[first..first + shape.cols]);
        }
        check_magnitude(&values, &format!("{}.weight, projected by a layer", spec.name), shape.format)?;
        let mut matrix = Matrix::zeroed(shape.format, count, shape.cols)?;
        matrix.set_rows(exec, 0, &values);
        Ok::<_, ModelError>(matrix)
    };
    let of_head = |head| Ok([of_columns(spec.hidden + head * shape.cols)?, of_columns(head * shape.cols)?]);
    (0..spec.heads).map(of_head).collect()
}
