//! The title of a session: how the first text begins that a person wrote. Owns what agents put before that under the
//! role of the user. Never looks at a session by itself.

use super::content::line;

/// The longest title, in characters.
const TITLE_CHARS: usize = 160;

/// What agents write in a user's place: how it begins, and how it ends.
const PREAMBLES: [(&str, &str); 15] = [
    ("<system-reminder>", "</system-reminder>"),
    ("<local-command-caveat>", "</local-command-caveat>"),
    ("<local-command-stdout>", "</local-command-stdout>"),
    ("<command-name>", "</command-name>"),
    ("<command-message>", "</command-message>"),
    ("<ide_opened_file>", "</ide_opened_file>"),
    ("<ide_selection>", "</ide_selection>"),
    ("<environment_context>", "</environment_context>"),
    ("<environment_details>", "</environment_details>"),
    ("<user_instructions>", "</user_instructions>"),
    ("<skills_instructions>", "</skills_instructions>"),
    ("<permissions instructions>", "</permissions instructions>"),
    ("# AGENTS.md instructions", "</INSTRUCTIONS>"),
    ("<INSTRUCTIONS>", "</INSTRUCTIONS>"),
    ("Caveat: The messages below were generated", "\n"),
];

/// A title from the texts under the user's role, in their order. Where a person wrote none of them, from the first.
pub fn title(texts: impl Iterator<Item = String>) -> Option<String> {
    let mut first = None;
    for text in texts {
        let title = line(human(&text), TITLE_CHARS);
        if !title.is_empty() {
            return Some(title);
        }
        first = first.or(Some(text));
    }
    let title = line(&first?, TITLE_CHARS);
    Some(title).filter(|title| !title.is_empty())
}

/// What a person wrote of a text: what stands behind an agent's own blocks, out of the tag around it.
fn human(text: &str) -> &str {
    let mut rest = text.trim_start();
    while let Some((_, end)) = PREAMBLES.iter().find(|(start, _)| rest.starts_with(start)) {
        // A block without its end goes on to the end of the text.
        rest = rest.split_once(end).map_or("", |(_, after)| after);
        rest = rest.trim_start();
    }
    unwrapped(rest).unwrap_or(rest)
}

/// The inside of a tag such as `<task>`, with which agents mark what a person wrote.
fn unwrapped(text: &str) -> Option<&str> {
    let (tag, inside) = text.strip_prefix('<')?.split_once('>')?;
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_' || byte == b'-';
    if tag.is_empty() || !tag.bytes().all(is_word) {
        return None;
    }
    let inside = inside.split_once(&format!("</{tag}>"));
    inside.map(|(inside, _)| inside.trim_start())
}

#[cfg(test)]
mod tests {

    #[test]
    fn a_title_begins_with_what_a_person_wrote() {
        let reminder = "<system-reminder>\nAs you answer\n</system-reminder>";
        let caveat = "<local-command-caveat>DO NOT respond</local-command-caveat>";
        let agents =
            "# AGENTS.md instructions for /src\n\n<INSTRUCTIONS>\nBe kind.\n</INSTRUCTIONS>";
        let context = "<environment_context>\n  <cwd>/src</cwd>\n</environment_context>";
        let command = "<command-message>fix is running</command-message>\n<command-name>/fix</command-name>\n\
                       <command-args>the tests</command-args>";
        for (texts, title) in [
            (vec!["Why is  this\nslow?".to_owned()], "Why is this slow?"),
            (
                vec![format!("{reminder}\n{reminder}\nExplore.")],
                "Explore.",
            ),
            (vec![reminder.to_owned(), "Explore.".to_owned()], "Explore."),
            (
                vec![format!("{agents}\n{context}"), "Go on".to_owned()],
                "Go on",
            ),
            (vec![caveat.to_owned(), command.to_owned()], "the tests"),
            (
                vec![
                    "<task>\nMend it\n</task>\n<environment_details>x</environment_details>"
                        .to_owned(),
                ],
                "Mend it",
            ),
            // What a person pasted is what that person wrote.
            (
                vec!["<div class=\"a\">why?</div>".to_owned()],
                "<div class=\"a\">why?</div>",
            ),
            (vec!["a < b".to_owned()], "a < b"),
            // Where nobody wrote anything, what is there is better than nothing.
            (
                vec![reminder.to_owned()],
                "<system-reminder> As you answer </system-reminder>",
            ),
            (
                vec!["<system-reminder> without end".to_owned()],
                "<system-reminder> without end",
            ),
        ] {
            assert_eq!(super::title(texts.into_iter()).as_deref(), Some(title));
        }
        assert_eq!(super::title([String::new()].into_iter()), None);
    }
}
