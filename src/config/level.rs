//! What is logged, as people write it. Owns which levels and directives are accepted. Never accepts
//! one that would silence the proxy by mistake: the subscriber's own reader takes such a slip for
//! the name of a module.

use tracing_subscriber::EnvFilter;

/// The levels. Nobody writes `off` by mistake.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
/// The module from which all of Plimsoll's own lines come.
const OWN: &str = env!("CARGO_PKG_NAME");

/// Reads a level, or directives by module, one of which must be about the proxy itself.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the readers share one signature"
)]
pub(super) fn log_level(text: String) -> Result<String, String> {
    let directives: Vec<&str> = text.split(',').map(str::trim).collect();
    let mut says_ours = false;
    for directive in &directives {
        says_ours |= is_ours(directive)?;
    }
    if !says_ours {
        return Err(format!(
            "`{text}` says nothing about {OWN} itself; put a level first, like \"warn,{text}\""
        ));
    }
    let level = directives.join(",");
    match EnvFilter::builder().parse(&level) {
        Ok(_) => Ok(level),
        Err(error) => Err(format!("`{text}` can't be read: {error}; {}", allowed())),
    }
}

/// Whether a directive is about the proxy itself.
fn is_ours(directive: &str) -> Result<bool, String> {
    let Some((target, level)) = directive.rsplit_once('=') else {
        return is_level(directive).map(|()| true);
    };
    is_level(level.trim())?;
    // The subscriber reads spans and their fields.
    let module = target.split('[').next().unwrap_or_default().trim();
    let (root, _) = module.split_once("::").unwrap_or((module, ""));
    if root != OWN && strsim::damerau_levenshtein(root, OWN) <= 2 {
        return Err(format!("`{root}` is not a module; did you mean `{OWN}`?"));
    }
    let is_name = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if module.split("::").all(is_name) || module.is_empty() && target.contains('[') {
        Ok(root == OWN || module.is_empty())
    } else {
        Err(format!("`{directive}` names no module; {}", allowed()))
    }
}

fn is_level(word: &str) -> Result<(), String> {
    if LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word)) {
        return Ok(());
    }
    Err(format!("`{word}` is not a level; {}", allowed()))
}

fn allowed() -> String {
    format!(
        "write error, warn, info, debug or trace (off for nothing at all), or directives by module like \
         \"warn,{OWN}=debug\""
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        log_level(text.to_owned())
    }

    #[test]
    fn levels_and_directives_are_read() {
        for text in [
            "error",
            "warn",
            "info",
            "debug",
            "trace",
            "off",
            "INFO",
            "warn,plimsoll=debug",
            "plimsoll=debug",
            "plimsoll::ingress=debug",
            "info,hyper=off,reqwest::connect=trace",
            "warn,[turn]=debug",
        ] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        assert_eq!(
            read(" warn, plimsoll=debug ").as_deref(),
            Ok("warn,plimsoll=debug")
        );
    }

    #[test]
    fn what_would_silence_by_a_slip_is_refused() {
        for (text, hint) in [
            ("loud", "error, warn, info, debug or trace"),
            ("", "is not a level"),
            (",", "is not a level"),
            ("warning", "is not a level"),
            ("verbose", "is not a level"),
            ("3", "is not a level"),
            ("7", "is not a level"),
            ("all", "is not a level"),
            ("plimsoll", "is not a level"),
            ("debug=plimsoll", "is not a level"),
            ("plimsoll=loud", "`loud` is not a level"),
            ("plimsoll=", "is not a level"),
            ("info;debug", "is not a level"),
            ("info debug", "is not a level"),
            ("\"info\"", "is not a level"),
            ("info,loud", "`loud` is not a level"),
            ("=info", "names no module"),
            ("warn,a b=info", "names no module"),
            ("plimsol=debug", "did you mean `plimsoll`"),
            ("warn,Plimsoll=debug", "did you mean `plimsoll`"),
            ("hyper=debug", "like \"warn,hyper=debug\""),
        ] {
            let refusal = read(text).unwrap_err();
            assert!(refusal.contains(hint), "{text:?}: {refusal}");
        }
    }
}
