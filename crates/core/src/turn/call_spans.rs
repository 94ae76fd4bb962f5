//! Where the calls of a request's messages lie, found once for each message. Never reads a call, and keeps no bytes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

/// In each message that was asked about, the places of its calls, in order.
#[derive(Debug, Default)]
pub(super) struct CallSpans(Mutex<HashMap<usize, Arc<[Range<usize>]>>>);

impl CallSpans {
    /// The call at this place of a message. `find` finds all of them, if they are not known.
    pub fn of<'a>(
        &self,
        number: usize,
        message: &'a [u8],
        place: usize,
        find: impl FnOnce() -> Vec<&'a [u8]>,
    ) -> Option<&'a [u8]> {
        let mut known = self.0.lock();
        let spans = known.entry(number).or_insert_with(|| {
            let start = message.as_ptr().addr();
            let span = |call: &[u8]| {
                let at = call.as_ptr().addr().wrapping_sub(start);
                at..at.wrapping_add(call.len())
            };
            find().into_iter().map(span).collect()
        });
        message.get(spans.get(place)?.clone())
    }
}
