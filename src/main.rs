//! Arguments to `cli`, exit codes back.
fn main() {}
