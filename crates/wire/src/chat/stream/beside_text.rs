//! What stands beside the text of a message: annotations, which name places in it, and images. The client reads the texts
//! of several hops as one, so the places of a later hop's move on by what stands before its text. Never reads the text.

use bytes::Bytes;
use plimsoll_model::raw::{Edit, Object};

use crate::answer::Answer;
use crate::json::{self, Node};

/// Lists of a message that a client reads with those of other hops.
pub const LISTS: [&str; 2] = ["annotations", "images"];
/// The members that name a place in the text, in characters.
const PLACES: [&str; 2] = ["start_index", "end_index"];
/// The member in which an annotation of a web page has them.
const CITATION: &str = "url_citation";

/// The elements of the lists of a message in a body, in the order of [`LISTS`]. They are slices of the body: an image has
/// megabytes.
pub fn lists(message: &Object<'_>, body: &Bytes) -> [Vec<Bytes>; 2] {
    LISTS.map(|key| {
        let list = message.raw(key).unwrap_or_default();
        json::elements(list)
            .map(|one| body.slice_ref(one))
            .collect()
    })
}

/// The lists of all hops as one message has them, of hops whose texts begin so many characters behind the beginning.
pub fn joined(hops: &[Answer], begins: &[usize]) -> [Vec<Bytes>; 2] {
    let mut all: [Vec<Bytes>; 2] = Default::default();
    for (hop, by) in hops.iter().zip(begins) {
        let [annotations, images] = &hop.beside;
        let [shifted, shown] = &mut all;
        shifted.extend(annotations.iter().map(|one| moved(one, *by)));
        shown.extend(images.iter().cloned());
    }
    all
}

/// The edit that moves the annotations of a piece on by so many characters.
pub fn moved_list(delta: &Node<'_>, by: usize) -> Option<Edit> {
    let [key, _] = LISTS;
    let annotations = json::elements(delta.object.raw(key).unwrap_or_default());
    let moved: Vec<Bytes> = annotations.map(|one| moved(one, by)).collect();
    (!moved.is_empty()).then(|| delta.set(key, &json::list(&moved)))
}

/// An annotation of a text that now begins so many characters later.
fn moved(annotation: &[u8], by: usize) -> Bytes {
    let Ok(own) = Object::parse(annotation) else {
        return Bytes::copy_from_slice(annotation);
    };
    let mut edits = places(&own, by);
    if let Some(citation) = own.child(CITATION) {
        let moved = json::splice(citation.bytes(), places(&citation, by));
        edits.push(own.set(CITATION, &moved));
    }
    json::splice(annotation, edits)
}

fn places(object: &Object<'_>, by: usize) -> Vec<Edit> {
    let by = u64::try_from(by).unwrap_or(u64::MAX);
    let place = |key: &&str| {
        let at = object.number(key)?;
        let moved = at.saturating_add(by).to_string();
        Some(object.set(key, moved.as_bytes()))
    };
    PLACES.iter().filter_map(place).collect()
}
