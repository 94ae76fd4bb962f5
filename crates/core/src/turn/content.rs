//! What of the client's content is stored. Owns the rule. Never stores any.

/// What of the client's content is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentSettings {
    /// Of which turns.
    pub of: StoreContent,
    /// Whether that of turns up to which something was evicted is stored in any case, so that it can be recalled after the client
    /// has dropped it.
    pub evicted: bool,
}

/// Of which turns the content is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreContent {
    /// Nothing: the client resends its originals with every request.
    Off,
    /// What a client asks to have stored, so that it need not resend it.
    #[default]
    Asked,
    /// Every message and every answer, so that a session can be exported whole.
    All,
}

impl ContentSettings {
    /// Whether a turn's content is stored, and whether it may be referred to. `asked` says whether the client asks for that.
    #[must_use]
    pub fn keeps(self, asked: bool) -> (bool, bool) {
        match self.of {
            StoreContent::All => (true, asked),
            StoreContent::Asked => (asked, asked),
            StoreContent::Off => (false, false),
        }
    }
}
