//! The mark of the tenant key on a server that proxies share. A server that does not answer is asked again
//! until it does. Owns that question. Never keeps anybody waiting for it beyond the start.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redis::{RedisResult, from_redis_value};

use super::super::key_mark::{self, Claim, KeyMark};
use super::{RedisStore, Shared};

impl RedisStore {
    /// Compares the mark with that of the server, and writes it where there is none. The start does not
    /// wait for a server that has not answered by now.
    pub(super) fn claim(&self, answers: bool) {
        let Some(mark) = self.shared.settings.key_mark else {
            return;
        };
        let (shared, limit) = (
            Arc::clone(&self.shared),
            self.shared.settings.redis.patience,
        );
        let asked = async move { shared.claim(mark).await };
        if answers && matches!(self.run(asked, limit), Some(Ok(()))) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let Some(runtime) = &self.runtime else {
            return;
        };
        runtime.spawn(async move {
            while shared.claim(mark).await.is_err() {
                tokio::time::sleep(shared.settings.stand_by).await;
            }
            if let Some(note) = shared.other_key() {
                tracing::warn!("{note}");
            }
        });
    }

    /// The mark on the server. `None` if it has none, or does not answer.
    pub(in super::super) fn key_mark(&self) -> Option<KeyMark> {
        let shared = Arc::clone(&self.shared);
        let asked = async move { shared.read_mark().await };
        let limit = self.shared.settings.redis.patience;
        self.run(asked, limit)?.ok()?
    }
}

impl Shared {
    async fn read_mark(&self) -> RedisResult<Option<KeyMark>> {
        let mut answers = self.reads.ask(vec![self.keys.read_mark()]).await?;
        let text = answers.pop().map(from_redis_value::<Option<String>>);
        let text = text.transpose()?.flatten();
        Ok(text.as_deref().and_then(KeyMark::parse))
    }

    async fn claim(&self, mark: KeyMark) -> RedisResult<()> {
        let there = self.read_mark().await?;
        // Parts of the list of sessions tell whether there are any, without a walk over all keys.
        let parts = self.reads.ask(self.keys.count_rows()).await?;
        let rows: Vec<u64> = parts
            .into_iter()
            .map(from_redis_value)
            .collect::<Result<_, _>>()?;
        let claim = mark.judge(there, rows.iter().any(|rows| *rows > 0));
        if claim == Claim::Free {
            self.writes.ask(vec![self.keys.write_mark(&mark)]).await?;
        }
        self.other_key
            .store(claim == Claim::Other, Ordering::Relaxed);
        Ok(())
    }

    /// What is said where the records are of another key.
    pub(super) fn other_key(&self) -> Option<String> {
        let undo = format!("delete the key {} on the server", self.keys.mark());
        let is_other = self.other_key.load(Ordering::Relaxed);
        is_other.then(|| key_mark::other_key(&undo))
    }
}
