//! A writer of small BTF blobs, and a kernel in miniature, for tests.
