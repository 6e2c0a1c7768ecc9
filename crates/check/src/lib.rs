//! Tree + types + probes to checked program. Knows neither DIF nor BPF.
