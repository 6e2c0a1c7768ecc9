//! Project chores: VM tier, benchmarks, tidy, generated pages.
fn main() {}
