//! What an operator asks of a live store at the admin listener: what it holds, and a sweep. Owns that
//! one is done at a time, since each reads everything. Never reads the store itself.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::store::{StoreError, StoreStats};

/// Counts what a store holds. Reads all of it.
pub type CountStore = dyn Fn() -> Result<StoreStats, StoreError> + Send + Sync;

/// Removes what is too old from a store, and returns how many blobs that were.
pub type SweepStore = dyn Fn() -> Result<u64, StoreError> + Send + Sync;

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

async fn alone(
    turn: &OneAtATime,
    work: impl FnOnce() -> Result<Value, StoreError> + Send + 'static,
) -> (StatusCode, Value) {
    let told = |status, message: &str| (status, json!({"error": {"message": message}}));
    let Ok(mine) = Arc::clone(turn).try_lock_owned() else {
        let message = "the store is being counted or swept already: ask again when that is done";
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

fn shown(stats: &StoreStats) -> Value {
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
