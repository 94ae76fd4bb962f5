//! Where items, messages and episodes stand in a transcript: an index type for each, so that none
//! is taken for another, and a list that is read by its own index alone. Never knows what it holds.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub usize);

        impl From<usize> for $name {
            fn from(at: usize) -> Self {
                Self(at)
            }
        }

        impl From<$name> for usize {
            fn from(at: $name) -> Self {
                at.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index!(
    /// The place of an item among the items of a transcript. Unlike [`plimsoll_model::ItemNo`] it
    /// holds for that transcript only.
    ItemIndex
);
index!(
    /// The place of a message among the messages of a transcript.
    EntryIndex
);
index!(
    /// The place of an episode among the episodes of a transcript.
    EpisodeIndex
);

/// All indices of a range.
pub fn indices<I: From<usize> + Into<usize>>(
    range: Range<I>,
) -> impl DoubleEndedIterator<Item = I> + Clone {
    (range.start.into()..range.end.into()).map(I::from)
}

/// A list that is read by an index of its own type.
#[derive(Clone, Debug)]
pub struct Indexed<I, T> {
    list: Vec<T>,
    index: PhantomData<I>,
}

impl<I: From<usize> + Into<usize>, T> Indexed<I, T> {
    /// The element at an index.
    #[must_use]
    pub fn get(&self, at: I) -> Option<&T> {
        self.list.get(at.into())
    }

    /// The element at an index, to be changed.
    pub fn get_mut(&mut self, at: I) -> Option<&mut T> {
        self.list.get_mut(at.into())
    }

    /// The elements of a range.
    #[must_use]
    pub fn range(&self, range: Range<I>) -> Option<&[T]> {
        self.list.get(range.start.into()..range.end.into())
    }

    /// The index behind the last element.
    #[must_use]
    pub fn end(&self) -> I {
        I::from(self.list.len())
    }

    /// Adds an element at the end and gives its index.
    pub fn push(&mut self, element: T) -> I {
        let at = self.end();
        self.list.push(element);
        at
    }

    /// Makes room for so many more.
    pub fn reserve(&mut self, more: usize) {
        self.list.reserve(more);
    }

    /// The elements with their indices.
    pub fn indexed(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        let indexed = self.list.iter().enumerate();
        indexed.map(|(at, element)| (I::from(at), element))
    }

    /// The elements, to be changed.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.list.iter_mut()
    }
}

impl<I, T> Default for Indexed<I, T> {
    fn default() -> Self {
        Self::from_iter([])
    }
}

impl<I, T> FromIterator<T> for Indexed<I, T> {
    fn from_iter<S: IntoIterator<Item = T>>(elements: S) -> Self {
        Self {
            list: elements.into_iter().collect(),
            index: PhantomData,
        }
    }
}

impl<I, T> Deref for Indexed<I, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.list
    }
}

impl<'a, I, T> IntoIterator for &'a Indexed<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

/// Tests panic where an element is missing.
#[cfg(test)]
impl<I: Into<usize>, T> std::ops::Index<I> for Indexed<I, T> {
    type Output = T;

    fn index(&self, at: I) -> &T {
        &self.list[at.into()]
    }
}
