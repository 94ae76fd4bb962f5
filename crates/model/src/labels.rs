//! Closed sets of words for metrics, logs and headers. The macro declares each set as an enum with
//! its words, so that all who register a set and all who name a member use the same list. Never
//! makes a word of anything in a request.

/// A closed set whose members have words.
pub trait LabelSet: Copy + 'static {
    /// Every member, in the order in which the set is declared.
    const MEMBERS: &'static [Self];

    /// The member's word.
    fn label(self) -> &'static str;

    /// The member's place among [`LabelSet::MEMBERS`].
    fn place(self) -> usize;
}

/// Declares a closed set: an enum, the word of each member, and the list of all. The metrics of a
/// new member exist at once and start at zero.
#[macro_export]
macro_rules! label_set {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident => $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$vmeta])* $variant),+ }

        impl $name {
            /// Every member, in the order in which the set is declared.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// The word in metrics, log lines and headers.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl $crate::LabelSet for $name {
            const MEMBERS: &'static [Self] = &Self::ALL;

            fn label(self) -> &'static str {
                self.name()
            }

            fn place(self) -> usize {
                self as usize
            }
        }
    };
}
