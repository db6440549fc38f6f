//! The `weir` binary: wiring only.
fn main() {}
