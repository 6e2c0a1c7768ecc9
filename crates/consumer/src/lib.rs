//! Buffers to records to text; aggregations; printf. Knows neither BPF nor providers.
