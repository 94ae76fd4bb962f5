//! The one task that writes. It takes what waits as a group, sends it in one round trip, and
//! acknowledges each batch when the server has answered for all of it. Never gives a batch up while
//! the store is open: a group that fails is sent again, whole, until the server takes it. Writing
//! twice changes nothing, because all that is written is named by its content.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tokio::sync::{mpsc, oneshot};

use super::super::batch::Batch;
use super::super::codec::Encoder;
use super::super::error::StoreError;
use super::super::ticket::Acknowledge;
use super::Shared;

/// About how many commands a group may have. More would only delay its first batch.
const GROUP_COMMANDS: usize = 512;
/// How many bytes of blobs a group may have.
const GROUP_BYTES: usize = 4 << 20;
/// How long the first pause after a failure is. Each is twice as long as the one before, up to the
/// longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A batch on its way to the server.
pub(super) struct Job {
    pub(super) batch: Batch,
    pub(super) acknowledge: Acknowledge,
}

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) encoder: Encoder,
    /// Whether the server knows the key under which is sealed what is written.
    pub(super) noted: bool,
}

impl Writer {
    /// Works until all senders are gone and everything is written.
    pub(super) async fn run(
        mut self,
        mut jobs: mpsc::UnboundedReceiver<Job>,
        closed: oneshot::Sender<()>,
    ) {
        while let Some(first) = jobs.recv().await {
            let (mut commands, mut bytes) = (first.batch.commands(), first.batch.size());
            let mut group = vec![first];
            while commands < GROUP_COMMANDS && bytes < GROUP_BYTES {
                let Ok(next) = jobs.try_recv() else { break };
                commands += next.batch.commands();
                bytes += next.batch.size();
                group.push(next);
            }
            self.write(group).await;
        }
        // The caller of close may have stopped waiting.
        let _ = closed.send(());
    }

    async fn write(&mut self, group: Vec<Job>) {
        let mut coded = Vec::with_capacity(group.len());
        for job in group {
            // What can't be encoded fails alone.
            let age = self.shared.age(job.batch.kind);
            match self.shared.keys.write(&job.batch, age, &mut self.encoder) {
                Ok(commands) => coded.push((job, commands)),
                Err(error) => self.settle(job, Err(error.into())),
            }
        }
        let all = self.note().into_iter();
        let all = all.chain(coded.iter().flat_map(|(_, commands)| commands.clone()));
        let bytes = coded.iter().map(|(job, _)| job.batch.size()).sum();
        match self.send(all.collect(), bytes).await {
            // Somebody else has written at a name of ours. Only the batch that meets it fails.
            Err(error @ StoreError::Server { .. }) if coded.len() == 1 => {
                coded
                    .into_iter()
                    .for_each(|(job, _)| self.settle(job, Err(error.clone())));
            }
            Err(StoreError::Server { .. }) => {
                for (job, commands) in coded {
                    let outcome = self.send(commands, job.batch.size()).await;
                    self.settle(job, outcome);
                }
            }
            outcome => {
                self.noted = true;
                coded
                    .into_iter()
                    .for_each(|(job, _)| self.settle(job, outcome.clone()));
            }
        }
    }

    /// What tells the server under which key the first writes are sealed.
    fn note(&self) -> Option<Cmd> {
        let name = self.shared.settings.seals.current()?;
        (!self.noted).then(|| self.shared.keys.note_seal(&name))
    }

    /// Takes a batch out of the overlay and says what became of it.
    fn settle(&self, Job { batch, acknowledge }: Job, outcome: Result<(), StoreError>) {
        let written = match outcome {
            Ok(()) | Err(StoreError::Unreplicated { .. }) => true,
            Err(_) => false,
        };
        if written {
            self.shared.remember(&batch);
        }
        self.shared.settle(&batch, outcome.is_ok());
        acknowledge.send(outcome);
    }

    /// Sends commands until the server has taken them all.
    ///
    /// # Errors
    /// [`StoreError::Unreplicated`] if the server has them, but too few replicas do, and
    /// [`StoreError::Server`] for what waiting does not mend.
    async fn send(&self, commands: Vec<Cmd>, bytes: usize) -> Result<(), StoreError> {
        let shared = &self.shared;
        if commands.is_empty() {
            return Ok(());
        }
        let mut pause = FIRST_PAUSE;
        let mut told = false;
        while let Err(error) = shared.ask_to_write(commands.clone(), bytes).await {
            let foreign = error.code() == Some("WRONGTYPE");
            let error = shared.failed("writing to", &error);
            if foreign {
                return Err(error);
            }
            if !told {
                tracing::warn!(%error, "what is to be stored waits in memory until the store takes it");
                told = true;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        if told {
            tracing::info!("the store takes writes again");
        }
        let wanted = shared.settings.redis.replicas;
        if wanted == 0 {
            return Ok(());
        }
        let had = shared.writes.replicated(wanted).await.unwrap_or(0);
        if had >= wanted {
            return Ok(());
        }
        shared.trouble.lock().few_replicas = true;
        Err(StoreError::Unreplicated { wanted, had })
    }
}

impl Batch {
    /// About how many commands the batch takes.
    fn commands(&self) -> usize {
        let row = 5 * usize::from(self.listed.is_some());
        self.blobs.len() + self.renewed.len() + 2 * self.links.len() + row
    }
}
