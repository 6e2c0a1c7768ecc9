//! D text to tokens to tree; never fails. Knows no types and no kernels.
