//! Addresses to names, kernel and processes. Knows no probes.
