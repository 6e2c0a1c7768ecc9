//! Creating, stopping and following processes. Knows no probes.
