//! The tenant key: the secret that turns credentials into tenants. Made once, kept in the data
//! directory, the same for every replica that shares it. It never shows itself in a log, and is
//! never replaced: a new key would orphan everything that was recorded.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::model::{Digest, TenantId};

use super::StoreError;
use super::files;

/// The file in the data directory that holds the key: 32 bytes, mode 600.
pub const TENANT_KEY_FILE: &str = "tenant.key";

/// 32 secret bytes. Tenants are keyed hashes under them.
#[derive(Clone, PartialEq, Eq)]
pub struct TenantKey([u8; 32]);

impl fmt::Debug for TenantKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TenantKey(redacted)")
    }
}

impl TenantKey {
    /// Reads the key of a data directory, or makes one where there is none. Of several processes
    /// that start at once, all get the same key.
    ///
    /// # Errors
    /// [`StoreError::Io`] where the directory can't be read or written, and
    /// [`StoreError::Corrupt`] for a key file that does not hold 32 bytes: it is never made anew,
    /// because what is recorded belongs to the old key.
    pub fn load_or_create(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(TENANT_KEY_FILE);
        match Self::load(&path)? {
            Some(key) => Ok(key),
            None => {
                Self::create(dir, &path)?;
                Self::load(&path)?
                    .ok_or_else(|| StoreError::io("reading", &path, &ErrorKind::NotFound.into()))
            }
        }
    }

    /// The key that a secret from the configuration stands for: 64 hex digits are the key itself,
    /// anything else is hashed into one.
    #[must_use]
    pub fn from_secret(secret: &str) -> Self {
        let secret = secret.trim();
        let key = from_hex(secret);
        Self(key.unwrap_or_else(|| {
            blake3::derive_key(
                "plimsoll 2026-11 tenant key from a secret",
                secret.as_bytes(),
            )
        }))
    }

    /// The tenant of a credential, or of the claims that name an account. Who asks decides what
    /// identifies an owner; this only hashes it.
    #[must_use]
    pub fn tenant(&self, owner: &[u8]) -> TenantId {
        TenantId(Digest(*blake3::keyed_hash(&self.0, owner).as_bytes()))
    }

    fn load(path: &Path) -> Result<Option<Self>, StoreError> {
        match fs::read(path) {
            Ok(bytes) => match <[u8; 32]>::try_from(bytes) {
                Ok(key) => Ok(Some(Self(key))),
                Err(bytes) => Err(StoreError::Corrupt {
                    detail: format!(
                        "{} holds {} bytes instead of 32: put the right key back",
                        path.display(),
                        bytes.len()
                    ),
                }),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::io("reading", path, &error)),
        }
    }

    /// Writes a fresh key beside the final name and links it there: the link fails where another
    /// process was first, and no reader ever sees half a key.
    fn create(dir: &Path, path: &Path) -> Result<(), StoreError> {
        fs::create_dir_all(dir).map_err(|error| StoreError::io("creating", dir, &error))?;
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| {
            StoreError::io(
                "drawing randomness for",
                path,
                &std::io::Error::other(error),
            )
        })?;
        let draft = dir.join(format!("{TENANT_KEY_FILE}.{}", Digest(key).short()));
        let written = private(&draft).and_then(|mut file| {
            file.write_all(&key)?;
            file.sync_all()
        });
        let linked = written.and_then(|()| match fs::hard_link(&draft, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            other => other,
        });
        let cleared = fs::remove_file(&draft);
        linked
            .and(cleared)
            .and_then(|()| files::sync_dir(dir))
            .map_err(|error| StoreError::io("writing", path, &error))
    }
}

fn private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != 32 || !rest.is_empty() {
        return None;
    }
    let mut key = [0; 32];
    for (byte, [high, low]) in key.iter_mut().zip(pairs) {
        let high = char::from(*high).to_digit(16)?;
        let low = char::from(*low).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let first = TenantKey::load_or_create(&data).unwrap();
        assert_eq!(TenantKey::load_or_create(&data).unwrap(), first);
        assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(data.join(TENANT_KEY_FILE))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let other = TenantKey::load_or_create(dir.path()).unwrap();
        assert_ne!(other, first);
    }

    #[test]
    fn all_who_start_at_once_get_one_key() {
        let dir = tempfile::tempdir().unwrap();
        let keys: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| TenantKey::load_or_create(dir.path())))
                .collect();
            starts
                .into_iter()
                .map(|start| start.join().unwrap().unwrap())
                .collect()
        });
        assert!(keys.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn a_damaged_key_is_an_error_and_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TENANT_KEY_FILE);
        fs::write(&path, b"short").unwrap();
        let error = TenantKey::load_or_create(dir.path()).unwrap_err();
        assert!(
            error.to_string().contains("5 bytes instead of 32"),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"short");
    }

    #[test]
    fn secrets_in_hex_are_the_key_and_others_are_hashed() {
        let hex = "0f".repeat(32);
        assert_eq!(TenantKey::from_secret(&hex), TenantKey([0x0f; 32]));
        assert_eq!(
            TenantKey::from_secret(&format!(" {hex}\n")),
            TenantKey([0x0f; 32])
        );
        let word = TenantKey::from_secret("correct horse");
        assert_eq!(word, TenantKey::from_secret("correct horse"));
        assert_ne!(word, TenantKey::from_secret("correct horse "[..12].trim()));
        assert_ne!(word, TenantKey::from_secret(""));
    }

    #[test]
    fn a_key_hides_itself_and_separates_tenants() {
        let key = TenantKey::from_secret("a");
        assert_eq!(format!("{key:?}"), "TenantKey(redacted)");
        assert_eq!(key.tenant(b"sk-1"), key.tenant(b"sk-1"));
        assert_ne!(key.tenant(b"sk-1"), key.tenant(b"sk-2"));
        assert_ne!(
            key.tenant(b"sk-1"),
            TenantKey::from_secret("b").tenant(b"sk-1")
        );
    }
}
