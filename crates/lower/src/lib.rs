//! Checked program to DIF. Does not know BPF.
