//! The body of an answer on its way to its reader: what the headers call it, what its first bytes say
//! it is, and what it unpacks to. Never reads from the network by itself.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Response};
use http_body::{Body, Frame};
use plimsoll_wire::answer::Answer;
use plimsoll_wire::stream::Form;

use super::managed_turn::ManagedTurn;
use super::unpack::Unpack;
use crate::upstream::{BodyError, ResponseBody};

/// The most bytes that one read of a packed answer may unpack to.
const UNPACKED_BYTES: usize = 64 << 20;

/// Why the client's own request is sent instead of a view.
#[derive(Clone, Copy, Debug)]
pub(super) enum Because {
    /// The answer to the view can't be read and may hold a hidden call.
    Unread,
    /// The view was refused.
    Refused {
        /// Whether it was refused for its length.
        too_long: bool,
    },
}

/// What became of an accepted answer.
pub(super) enum Served {
    /// The client's answer.
    Answer(Response<axum::body::Body>),
    /// The client's own request has to be served, for this reason. The client has seen nothing yet.
    Own(Box<ManagedTurn>, Because),
    /// The answer is not a stream, although the client asked for one. The client has seen nothing
    /// yet, and the hops before it have given these answers.
    WholeBody(
        Box<ManagedTurn>,
        Box<http::response::Parts>,
        Incoming,
        Vec<Answer>,
    ),
}

/// A body of which a part may have been read already.
#[derive(Debug)]
pub(super) struct Incoming {
    /// What was read and given back.
    begun: Option<Bytes>,
    rest: ResponseBody,
    /// Whether the headers call it a stream of events.
    pub(super) events: bool,
    /// How it is packed, although the proxy asked for identity.
    unpack: Unpack,
    /// Whether it has begun to be unpacked.
    unpacks: bool,
    /// Whether it is packed in a way that can't be read.
    pub(super) coded: bool,
}

impl Incoming {
    /// Takes a response apart into its head and its body. A head whose body will be unpacked says no
    /// longer how that was packed.
    pub(super) fn of(response: Response<ResponseBody>) -> (http::response::Parts, Self) {
        let (mut head, rest) = response.into_parts();
        let unpack = Unpack::of(&head.headers);
        let coded = unpack.is_unknown();
        if !coded && !unpack.is_plain() {
            head.headers.remove(CONTENT_ENCODING);
            head.headers.remove(CONTENT_LENGTH);
        }
        let body = Self {
            begun: None,
            rest,
            events: is_events(&head.headers),
            unpack,
            unpacks: false,
            coded,
        };
        (head, body)
    }

    /// Unpacks a frame of the upstream's.
    fn unpacked(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BodyError> {
        if self.coded || self.unpack.is_plain() {
            return Ok(frame);
        }
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(other) => return Ok(other),
        };
        // Some gateways unpack an answer and leave the header. No packed body begins like this.
        if !self.unpacks && !data.is_empty() && Form::of(&data) != Some(Form::Other) {
            self.unpack = Unpack::Plain;
            return Ok(Frame::data(data));
        }
        self.unpacks = true;
        let plain = self.unpack.push(&data, UNPACKED_BYTES);
        self.coded = plain.is_none();
        plain.map(Frame::data).ok_or(BodyError::Coding)
    }

    /// Gives back what was read.
    pub(super) fn unread(&mut self, begun: Bytes) {
        self.begun = Some(begun);
    }

    /// Drops what was not read, which cancels the upstream's request if that has not ended.
    pub(super) fn close(&mut self) {
        self.begun = None;
        self.rest.close();
    }
}

/// Whether the headers call a body a stream of events.
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
            None => {
                let frame = ready!(Pin::new(&mut self.rest).poll_frame(cx));
                Poll::Ready(frame.map(|frame| self.unpacked(frame?)))
            }
        }
    }
}

/// The first bytes of a body whose form is not known yet.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    held: BytesMut,
    known: bool,
}

/// What the first bytes of a body say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// Too little has come to tell.
    Waits,
    /// The body is a stream of events. It begins with these bytes.
    Events(Bytes),
    /// The body is not a stream of events. It begins with these bytes.
    Other(Bytes),
}

impl Beginning {
    /// Whether the form of the body is known.
    pub(super) fn is_known(&self) -> bool {
        self.known
    }

    /// Takes the next bytes. `events` decides where the bytes say nothing.
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
            // White space alone tells nothing yet. But it must not be collected without end.
            None if all.len() < MAX_BLANK => {
                self.held = BytesMut::from(all.as_ref());
                Begun::Waits
            }
            form => self.decide(form, events, all),
        }
    }

    /// Takes the end of the body. `events` decides where the bytes say nothing.
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

/// How much white space is read before the headers decide.
const MAX_BLANK: usize = 4 << 10;

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
