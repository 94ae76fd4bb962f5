//! What may be changed in a message, whatever its wire format. Never changes one itself.

/// What to change in an assistant message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssistantEdit<'a> {
    /// Text to cut from the front: what earlier hops handed out.
    pub cut: &'a str,
    /// Whether all text goes.
    pub drop_text: bool,
    /// Whether reasoning fields go.
    pub drop_reasoning: bool,
    /// Which of the client's calls stay; all where it is `None`.
    pub keep_calls: Option<Vec<bool>>,
    /// Hidden calls with their places among all calls, in order.
    pub insert: Vec<(usize, &'a str)>,
    /// New arguments of the client's calls, by index.
    pub arguments: Vec<(usize, &'a str)>,
}
