//! The promise that a batch becomes durable, and the other end of it. Owns how it is resolved. Never
//! decides the outcome.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::error::StoreError;

/// Resolves when a batch is durable, or has failed. Dropping it does not take the batch back.
#[derive(Debug)]
pub struct Ticket(TicketState);

#[derive(Debug)]
enum TicketState {
    Done(Result<(), StoreError>),
    Waiting(oneshot::Receiver<Result<(), StoreError>>),
}

/// The other end of a [`Ticket`].
pub(super) struct Acknowledge(oneshot::Sender<Result<(), StoreError>>);

impl Acknowledge {
    /// Resolves the ticket. It does no harm if nobody waits for it any more.
    pub(super) fn send(self, outcome: Result<(), StoreError>) {
        let _ = self.0.send(outcome);
    }
}

impl Ticket {
    pub(super) fn done(outcome: Result<(), StoreError>) -> Self {
        Self(TicketState::Done(outcome))
    }

    /// Whether the batch was refused or has failed already.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.0, TicketState::Done(Err(_)))
    }

    /// Blocks until the outcome is known. Never to be called on an async worker.
    ///
    /// # Errors
    /// Why the batch will never be durable.
    pub fn wait(self) -> Result<(), StoreError> {
        match self.0 {
            TicketState::Done(outcome) => outcome,
            TicketState::Waiting(receiver) => {
                let closed = |_| Err(StoreError::Closed);
                receiver.blocking_recv().unwrap_or_else(closed)
            }
        }
    }

    pub(super) fn waiting() -> (Acknowledge, Self) {
        let (sender, receiver) = oneshot::channel();
        (Acknowledge(sender), Self(TicketState::Waiting(receiver)))
    }
}

impl Future for Ticket {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            TicketState::Done(outcome) => Poll::Ready(outcome.clone()),
            TicketState::Waiting(receiver) => {
                // The writer went away without an answer, so the store was closed.
                let closed = |_| Err(StoreError::Closed);
                Pin::new(receiver)
                    .poll(cx)
                    .map(|answer| answer.unwrap_or_else(closed))
            }
        }
    }
}
