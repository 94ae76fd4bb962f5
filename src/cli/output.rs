//! Files that a flag names. Owns the words if one can't be written. Never decides what is in it.

use std::path::Path;

use anyhow::Context as _;

/// Writes a file that a flag named.
pub fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("can't write {}", file.display()))
}
