//! The C type model and its readers (kernel BTF, lazily). Knows no D programs.
