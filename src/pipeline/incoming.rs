//! An accepted answer's body on its way to the half that reads it: what its headers call it, and what
//! was read of it to find out what it is. Never reads anything by itself.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Response};
use http_body::{Body, Frame};

use super::managed::Turn;
use crate::dialect::stream::Form;
use crate::upstream::{BodyError, ResponseBody};

/// What a reader made of an accepted answer.
pub(super) enum Served {
    /// The client's answer.
    Answer(Response<axum::body::Body>),
    /// Nothing that may be handed on: it can't be read, and may hold calls that the client must not
    /// see. That has seen nothing yet.
    Own(Box<Turn>),
    /// Nothing yet: what came where a stream was expected is none.
    Whole(Box<Turn>, Box<http::response::Parts>, Incoming),
}

/// A body, some of which may have been read.
#[derive(Debug)]
pub(super) struct Incoming {
    /// What was read and is not taken yet.
    begun: Option<Bytes>,
    rest: ResponseBody,
    /// Whether its headers call it a stream of events.
    pub(super) events: bool,
    /// Whether its headers say that it is coded. We asked for identity, and so can't read it.
    pub(super) coded: bool,
}

impl Incoming {
    /// The body of a response, with its head.
    pub(super) fn of(response: Response<ResponseBody>) -> (http::response::Parts, Self) {
        let (head, rest) = response.into_parts();
        let body = Self {
            begun: None,
            rest,
            events: is_events(&head.headers),
            coded: head.headers.contains_key(CONTENT_ENCODING),
        };
        (head, body)
    }

    /// Gives back what was read.
    pub(super) fn unread(self, begun: Bytes) -> Self {
        Self {
            begun: Some(begun),
            ..self
        }
    }
}

/// Whether headers call a body a stream of events.
pub(super) fn is_events(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| {
        let kind = kind.trim().to_ascii_lowercase();
        kind.starts_with("text/event-stream")
    })
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.begun.take() {
            Some(begun) => Poll::Ready(Some(Ok(Frame::data(begun)))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }
}

/// The beginning of a body whose form is not known yet.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    held: BytesMut,
    known: bool,
}

/// What the beginning of a body says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// Nothing yet.
    Waits,
    /// It is read as events: these bytes first.
    Events(Bytes),
    /// It is none, and begins with these bytes.
    Other(Bytes),
}

impl Beginning {
    /// Whether it is known what the body is.
    pub(super) fn is_known(&self) -> bool {
        self.known
    }

    /// Takes one read. `events` says what the body is where its bytes don't.
    pub(super) fn take(&mut self, read: Bytes, events: bool) -> Begun {
        if self.known {
            return Begun::Events(read);
        }
        let all = if self.held.is_empty() {
            read
        } else {
            self.held.extend_from_slice(&read);
            self.held.split().freeze()
        };
        match Form::of(&all) {
            None if all.len() < LONGEST => {
                self.held = BytesMut::from(all.as_ref());
                Begun::Waits
            }
            form => self.decide(form, events, all),
        }
    }

    /// What is left where the body has ended.
    pub(super) fn end(&mut self, events: bool) -> Begun {
        let all = self.held.split().freeze();
        if self.known {
            return Begun::Events(all);
        }
        self.decide(None, events, all)
    }

    fn decide(&mut self, form: Option<Form>, events: bool, all: Bytes) -> Begun {
        self.known = true;
        match form {
            Some(Form::Events) => Begun::Events(all),
            Some(Form::Json) => Begun::Other(all),
            Some(Form::Other) | None if events => Begun::Events(all),
            Some(Form::Other) | None => Begun::Other(all),
        }
    }
}

/// The longest beginning, of white space alone, that is waited for.
const LONGEST: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_tell_however_they_are_cut() {
        for (body, events, form) in [
            ("data: x", false, true),
            ("\u{feff}\n event: x", false, true),
            (": x", false, true),
            ("id\n", false, true),
            (" \r\n{\"a\":1}", true, false),
            ("\u{feff}[", true, false),
            ("database: x", false, false),
            ("database: x", true, true),
            ("<html>", false, false),
            ("dat", false, false),
            ("", true, true),
            ("", false, false),
        ] {
            for size in 1..=body.len().max(1) {
                let mut beginning = Beginning::default();
                let (mut all, mut is_events) = (Vec::new(), None);
                for read in body.as_bytes().chunks(size) {
                    match beginning.take(Bytes::copy_from_slice(read), events) {
                        Begun::Waits => continue,
                        Begun::Events(bytes) => {
                            all.extend_from_slice(&bytes);
                            is_events.get_or_insert(true);
                        }
                        Begun::Other(bytes) => {
                            all.extend_from_slice(&bytes);
                            is_events = Some(false);
                            break;
                        }
                    }
                }
                if is_events.is_none() {
                    is_events = Some(match beginning.end(events) {
                        Begun::Events(bytes) => {
                            all.extend_from_slice(&bytes);
                            true
                        }
                        Begun::Waits | Begun::Other(_) => false,
                    });
                }
                assert_eq!(is_events, Some(form), "{body:?} by {size}");
                if form {
                    assert_eq!(all, body.as_bytes(), "{body:?} by {size}");
                }
            }
        }
    }
}
