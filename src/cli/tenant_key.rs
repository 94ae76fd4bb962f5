//! The key of the tenant hash: given, or made at the first start and kept. Owns its file. Never
//! prints the key, and never makes one for this process alone if records outlive the process.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use anyhow::Context as _;
use plimsoll_store::{Keepsake, is_of_disk, make_data_directory};

use crate::config::{Backend, StoreSection, TenantKey};

/// The name of the file in the data directory. Its mode is 600.
pub(super) const KEY_FILE: &str = "tenant.key";

/// Separates this use of the secret from any other.
const PURPOSE: &str = "plimsoll 2026-11 tenant key";

/// The key of this process, and what must be kept for the next.
pub struct ObtainedKey {
    /// The key.
    pub key: [u8; 32],
    /// The file that the next process needs in the data directory to have the same key.
    pub keepsake: Option<Keepsake>,
}

/// Finds or makes the key of this process.
///
/// # Errors
/// If the data directory can't be written, or holds a file that is not a key. A disk that is full
/// or broken is no error: the key is kept as soon as the disk takes it.
pub fn obtain(key: &TenantKey, store: &StoreSection) -> anyhow::Result<ObtainedKey> {
    let (secret, outlives) = match (key, store.backend) {
        (TenantKey::Given(secret), _) => (secret.expose().as_bytes().to_vec(), false),
        (TenantKey::DataDirectory, Backend::Sled) => (kept_or_fresh(&store.path)?, true),
        (TenantKey::DataDirectory, Backend::Redis) => {
            anyhow::bail!("proxies that share a store need the same key: set PLIMSOLL__TENANT__KEY")
        }
        // Nothing outlives the process there, so the key need not either.
        (TenantKey::DataDirectory, Backend::Memory) => (fresh()?, false),
    };
    let key = blake3::derive_key(PURPOSE, &secret);
    let keepsake = outlives.then_some(Keepsake {
        name: KEY_FILE,
        bytes: secret,
    });
    Ok(ObtainedKey { key, keepsake })
}

/// The secret in the directory. If the disk refuses, a fresh one that is kept later.
fn kept_or_fresh(directory: &Path) -> anyhow::Result<Vec<u8>> {
    let there = directory.exists();
    match kept(directory) {
        Err(error) if refused(&error, there) => {
            tracing::warn!(
                "no tenant key could be read or kept: {error:#}; this process uses one of its own until the disk takes it"
            );
            fresh()
        }
        other => other,
    }
}

fn refused(error: &anyhow::Error, there: bool) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| is_of_disk(cause.kind(), &cause.to_string(), there))
}

/// The secret in the directory, which is made if it is missing. Two processes that start at once
/// agree, because only one of them can put the file in place.
fn kept(directory: &Path) -> anyhow::Result<Vec<u8>> {
    let path = directory.join(KEY_FILE);
    let advice = || {
        format!(
            "can't keep the tenant key in {}; make --data writable, or set PLIMSOLL__TENANT__KEY",
            path.display()
        )
    };
    match fs::read(&path) {
        Ok(secret) if secret.len() == 64 => return Ok(secret),
        Ok(_) => anyhow::bail!(
            "{} is not a tenant key; restore it from a backup, or remove it (old sessions are then not found)",
            path.display()
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(advice),
    }
    make_data_directory(directory).with_context(advice)?;
    let secret = fresh()?;
    // Temporary files have mode 600, and the file gets its name only after its content.
    let mut file = tempfile::NamedTempFile::new_in(directory).with_context(advice)?;
    file.write_all(&secret).with_context(advice)?;
    file.as_file().sync_all().with_context(advice)?;
    match file.persist_noclobber(&path) {
        Ok(_) => Ok(secret),
        Err(refused) if refused.error.kind() == ErrorKind::AlreadyExists => {
            fs::read(&path).with_context(advice)
        }
        Err(refused) => Err(refused.error).with_context(advice),
    }
}

/// 32 random bytes in hexadecimal.
fn fresh() -> anyhow::Result<Vec<u8>> {
    let mut bytes = [0; 32];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| {
        anyhow::anyhow!("the system gave no random bytes; set PLIMSOLL__TENANT__KEY")
    })?;
    Ok(bytes
        .iter()
        .flat_map(|byte| format!("{byte:02x}").into_bytes())
        .collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::Secret;

    fn obtain(key: &TenantKey, store: &StoreSection) -> anyhow::Result<[u8; 32]> {
        super::obtain(key, store).map(|obtained| obtained.key)
    }

    fn sled(path: &Path) -> StoreSection {
        StoreSection {
            path: path.join("data"),
            ..StoreSection::default()
        }
    }

    #[test]
    fn a_kept_key_stays_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let store = sled(directory.path());
        let first = obtain(&TenantKey::DataDirectory, &store).unwrap();
        assert_eq!(obtain(&TenantKey::DataDirectory, &store).unwrap(), first);
        let mode = fs::metadata(store.path.join(KEY_FILE))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let elsewhere = tempfile::tempdir().unwrap();
        assert_ne!(
            obtain(&TenantKey::DataDirectory, &sled(elsewhere.path())).unwrap(),
            first
        );
    }

    #[test]
    fn a_given_key_touches_no_disk() {
        let directory = tempfile::tempdir().unwrap();
        let store = sled(directory.path());
        let given = |text: &str| obtain(&TenantKey::Given(Secret::new(text)), &store).unwrap();
        assert_eq!(given("a"), given("a"));
        assert_ne!(given("a"), given("b"));
        assert!(!store.path.exists());
    }

    #[test]
    fn a_broken_key_file_is_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let store = sled(directory.path());
        fs::create_dir_all(&store.path).unwrap();
        fs::write(store.path.join(KEY_FILE), "short").unwrap();
        let error = obtain(&TenantKey::DataDirectory, &store)
            .unwrap_err()
            .to_string();
        assert!(error.contains("not a tenant key"), "{error}");
        assert_eq!(fs::read(store.path.join(KEY_FILE)).unwrap(), b"short");
    }
}
