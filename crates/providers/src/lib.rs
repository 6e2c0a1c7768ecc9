//! One module per provider: which probes exist, their arguments, how they attach. Knows no D.
