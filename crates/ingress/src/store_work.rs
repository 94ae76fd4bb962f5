//! What an operator asks of a live store at the admin listener: what it holds, a sweep, a snapshot,
//! and that something is erased. Owns that one is done at a time, since each reads everything. Never
//! reads the store itself.

use std::sync::Arc;

use http::StatusCode;
use plimsoll_model::{Digest, Erased, TenantId};
use plimsoll_store::{Snapshot, StoreError, StoreStats};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// Counts what a store holds. Reads all of it.
pub type CountStore = dyn Fn() -> Result<StoreStats, StoreError> + Send + Sync;

/// Removes what is too old from a store, and returns how many blobs that were.
pub type SweepStore = dyn Fn() -> Result<u64, StoreError> + Send + Sync;

/// Writes a snapshot with this name where the operator wants them.
pub type SnapshotStore = dyn Fn(&str) -> Result<Snapshot, StoreError> + Send + Sync;

/// Erases from the store, and from the memory of this process.
pub type EraseFromStore = dyn Fn(&Erased) -> Result<ErasedCounts, String> + Send + Sync;

/// What was erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErasedCounts {
    /// How many sessions.
    pub sessions: u64,
    /// How many records they had.
    pub records: u64,
    /// How many blobs were removed in all.
    pub removed: u64,
}

/// What a snapshot is to be called.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SnapshotBody {
    name: String,
}

/// What is to be erased: one of the two.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EraseBody {
    session: Option<String>,
    tenant: Option<String>,
}

/// How tenants are named.
const TENANT: &str = "a tenant is named by 64 hexadecimal digits, as GET /api/sessions shows them";

/// Reads what is to be erased: a session by its name, or a tenant by its digest.
///
/// # Errors
/// What has to be given instead.
pub fn erased(session: Option<&str>, tenant: Option<&str>) -> Result<Erased, &'static str> {
    match (session, tenant) {
        (Some(name), None) if !name.is_empty() => Ok(Erased::Session(name.to_ascii_lowercase())),
        (None, Some(digest)) => match Digest::parse_hex(digest) {
            Some(digest) => Ok(Erased::Tenant(TenantId(digest))),
            None => Err(TENANT),
        },
        _ => Err("name what to erase: a session or a tenant"),
    }
}

/// Held while somebody's work is done.
pub(super) type OneAtATime = Arc<Mutex<()>>;

/// What the store holds.
pub(super) async fn stats(turn: &OneAtATime, count: Arc<CountStore>) -> (StatusCode, Value) {
    alone(turn, move || count().map(|stats| shown(&stats))).await
}

/// Sweeps the store, and answers when that is done.
pub(super) async fn sweep(turn: &OneAtATime, sweep: Arc<SweepStore>) -> (StatusCode, Value) {
    alone(turn, move || {
        sweep().map(|removed| json!({"removed": removed}))
    })
    .await
}

/// Writes a snapshot, and answers when it is on the disk.
pub(super) async fn snapshot(
    turn: &OneAtATime,
    body: &[u8],
    snapshot: Arc<SnapshotStore>,
) -> (StatusCode, Value) {
    let name = match serde_json::from_slice::<SnapshotBody>(body) {
        Ok(SnapshotBody { name }) => name,
        Err(error) => {
            let message = format!("send a body like {{\"name\": \"monday\"}}: {error}");
            return told(StatusCode::BAD_REQUEST, &message);
        }
    };
    let written = move || {
        let Snapshot { path, bytes } = snapshot(&name)?;
        Ok::<_, StoreError>(json!({"directory": path, "bytes": bytes}))
    };
    alone(turn, written).await
}

/// Erases, and answers when it is gone.
pub(super) async fn erase(
    turn: &OneAtATime,
    body: &[u8],
    erase: Arc<EraseFromStore>,
) -> (StatusCode, Value) {
    let asked = serde_json::from_slice::<EraseBody>(body);
    let asked = asked.map_err(|error| {
        format!("send a body like {{\"session\": \"0123456789abcdef\"}} or {{\"tenant\": \"DIGEST\"}}: {error}")
    });
    let asked = asked.and_then(|EraseBody { session, tenant }| {
        erased(session.as_deref(), tenant.as_deref()).map_err(str::to_owned)
    });
    let whose = match asked {
        Ok(whose) => whose,
        Err(message) => return told(StatusCode::BAD_REQUEST, &message),
    };
    let done = move || {
        let ErasedCounts {
            sessions,
            records,
            removed,
        } = erase(&whose)?;
        Ok::<_, String>(json!({"sessions": sessions, "records": records, "removed": removed}))
    };
    alone(turn, done).await
}

fn told(status: StatusCode, message: &str) -> (StatusCode, Value) {
    (status, json!({"error": {"message": message}}))
}

async fn alone<E: ToString + Send + 'static>(
    turn: &OneAtATime,
    work: impl FnOnce() -> Result<Value, E> + Send + 'static,
) -> (StatusCode, Value) {
    let Ok(mine) = Arc::clone(turn).try_lock_owned() else {
        let message = "the store is being counted, swept, copied or erased from already: ask again when that is done";
        return told(StatusCode::CONFLICT, message);
    };
    // The work goes on if nobody waits for it any more, and its place is taken as long.
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(mine);
        done
    });
    match done.await {
        Ok(Ok(value)) => (StatusCode::OK, value),
        Ok(Err(error)) => told(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        Err(_) => told(StatusCode::INTERNAL_SERVER_ERROR, "the work stopped"),
    }
}

/// What a store holds, as it is answered.
#[must_use]
pub fn shown(stats: &StoreStats) -> Value {
    json!({
        "sessions": stats.sessions,
        "oldest": stats.oldest,
        "newest": stats.newest,
        "records": stats.records,
        "record_bytes": stats.record_bytes,
        "content": stats.content,
        "content_bytes": stats.content_bytes,
        "links": stats.links,
        "disk_bytes": stats.disk_bytes,
        "archive": stats.archive.map(|parts| json!({
            "bytes": parts.all,
            "records": parts.records,
            "content": parts.content,
            "names": parts.names,
            "links": parts.links,
            "rows": parts.rows,
            "frames": parts.frames(),
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_question_is_refused_until_the_first_is_answered() {
        let turn = OneAtATime::default();
        let held = Arc::clone(&turn).lock_owned().await;
        let (status, told) = sweep(&turn, Arc::new(|| Ok(3))).await;
        assert_eq!(status, StatusCode::CONFLICT, "{told}");
        drop(held);
        let swept = sweep(&turn, Arc::new(|| Ok(3))).await;
        assert_eq!(swept, (StatusCode::OK, json!({"removed": 3})));
        let (status, told) = stats(&turn, Arc::new(|| Err(StoreError::Degraded))).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(
            told["error"]["message"]
                .as_str()
                .unwrap()
                .contains("corruption")
        );
    }
}
