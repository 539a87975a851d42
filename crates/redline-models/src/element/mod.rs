//! What blocks are made of, as an architecture describes it and as it is in memory; and tensors as checkpoints hold them.

pub mod dense;
pub mod distance;
pub mod linear;
pub mod norm;
pub mod rotation;
pub mod tensor;
