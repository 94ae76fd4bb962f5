//! Closed sets of words for metrics, logs and headers. Each set is an enum that the macro declares
//! with its words, so that whoever registers a set and whoever names a member of it use the same
//! list. Never makes a word of anything that a request holds.

/// A closed set whose members have words.
pub trait LabelSet: Copy + 'static {
    /// Every member, in the order in which the set is declared.
    const MEMBERS: &'static [Self];

    /// The member's word.
    fn label(self) -> &'static str;

    /// The member's place among [`LabelSet::MEMBERS`].
    fn place(self) -> usize;
}

/// Declares a closed set: an enum, the word of each member, and the list of all. A member that is
/// added here is everywhere: its metrics stand at zero from the start.
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

        impl $crate::model::LabelSet for $name {
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
pub(crate) use label_set;
