//! The names of variables: which are settings, which only look like one, and which setting was
//! meant. Owns the prefix. Never reads a value, except to recognise what an orchestrator sets.

/// The prefix of every variable that is a setting.
pub const ENV_PREFIX: &str = "PLIMSOLL__";
/// The beginning of every name that may be meant as a setting, in lower or upper case.
const STEM: &str = "plimsoll";

/// The shipped file, which has every setting with its default.
pub(super) const SHIPPED: &str = include_str!("../../config/plimsoll.toml");

/// Settings whose flag has another name.
const FLAGS: [(&str, &str); 6] = [
    ("listen", "server.listen"),
    ("admin", "server.admin"),
    ("upstream", "upstream.base_url"),
    ("data", "store.path"),
    ("budget", "budget.tokens"),
    ("log", "log.level"),
];

/// Whether a variable is a setting, or looks as if it should be one.
#[must_use]
pub fn is_ours(name: &str) -> bool {
    let stem = name.get(..STEM.len());
    stem.is_some_and(|stem| stem.eq_ignore_ascii_case(STEM))
}

/// One sentence for each variable that looks like a setting but is not read.
pub fn unread(variables: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let strange = |(name, value): &(String, String)| {
        is_ours(name) && !name.starts_with(ENV_PREFIX) && !is_of_a_service(name, value)
    };
    let note = |(name, _): (String, String)| match nearest(&name) {
        Some(setting) => format!("{name} is not read; did you mean {setting}?"),
        None => format!(
            "{name} is not read; settings are {ENV_PREFIX}SECTION__KEY, and config/plimsoll.toml lists them"
        ),
    };
    let mut notes: Vec<String> = variables.filter(strange).map(note).collect();
    notes.sort();
    notes
}

/// Whether Kubernetes set the variable, as it does for a service with the proxy's name.
fn is_of_a_service(name: &str, value: &str) -> bool {
    let port = name.contains("_PORT_") || name.ends_with("_PORT");
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || port && (value.contains("://") || name.contains("_TCP_") || name.contains("_UDP_"))
}

/// The variable of the setting that a name most likely means.
#[must_use]
pub fn nearest(name: &str) -> Option<String> {
    let meant = plain(name.get(STEM.len()..)?);
    let settings = settings();
    let aliases = FLAGS.iter().map(|(flag, setting)| (plain(flag), *setting));
    let whole = settings.iter().map(|name| (plain(name), name.as_str()));
    let keys = settings.iter().filter_map(|name| {
        let (_, key) = name.split_once('.')?;
        // A key that several sections have says nothing by itself.
        let alike = settings
            .iter()
            .filter(|other| other.ends_with(&format!(".{key}")));
        (alike.count() == 1).then(|| (plain(key), name.as_str()))
    });
    // A flag's name comes first, because most people know the setting by it.
    let candidates = aliases.chain(whole).chain(keys);
    let near = candidates
        .map(|(candidate, setting)| {
            let distance = strsim::damerau_levenshtein(&meant, &candidate);
            (distance, candidate.len(), setting)
        })
        .filter(|(distance, length, _)| *distance <= length.max(&meant.len()) / 3)
        .min_by_key(|(distance, ..)| *distance);
    near.map(|(.., setting)| {
        let variable = setting.replace('.', "__").to_ascii_uppercase();
        format!("{ENV_PREFIX}{variable}")
    })
}

/// A name without the characters that divide its parts.
fn plain(name: &str) -> String {
    let parts = name.chars().filter(char::is_ascii_alphanumeric);
    parts.map(|c| c.to_ascii_lowercase()).collect()
}

/// All settings, as `section.key`.
fn settings() -> Vec<String> {
    let shipped: toml::Table = SHIPPED.parse().unwrap_or_default();
    let of = |(section, keys): (String, toml::Value)| {
        let keys = keys.as_table().cloned().unwrap_or_default();
        keys.into_iter()
            .map(move |(key, _)| format!("{section}.{key}"))
    };
    shipped.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_setting_is_said_with_what_was_meant() {
        for (name, meant) in [
            ("PLIMSOLL_BUDGET", "PLIMSOLL__BUDGET__TOKENS"),
            ("PLIMSOLL_LISTEN", "PLIMSOLL__SERVER__LISTEN"),
            ("PLIMSOLL_UPSTREAM", "PLIMSOLL__UPSTREAM__BASE_URL"),
            ("PLIMSOLL_BASE_URL", "PLIMSOLL__UPSTREAM__BASE_URL"),
            ("PLIMSOLL_BUDGET_TOKENS", "PLIMSOLL__BUDGET__TOKENS"),
            ("PLIMSOLL_BUDGET__TOKENS", "PLIMSOLL__BUDGET__TOKENS"),
            ("plimsoll__budget__tokens", "PLIMSOLL__BUDGET__TOKENS"),
            ("PLIMSOLL_LOG_LEVEL", "PLIMSOLL__LOG__LEVEL"),
            ("PLIMSOLL_LOG", "PLIMSOLL__LOG__LEVEL"),
            ("PLIMSOLL_STRIKT_ACTIVE", "PLIMSOLL__BUDGET__STRICT_ACTIVE"),
            ("PLIMSOLLBUDGET", "PLIMSOLL__BUDGET__TOKENS"),
            ("PLIMSOLL_SOMETHING_ELSE", "SECTION__KEY"),
        ] {
            let notes = unread([(name.to_owned(), "1".to_owned())].into_iter());
            assert_eq!(notes.len(), 1, "{name}");
            let fits = notes[0].starts_with(name) && notes[0].contains(meant);
            assert!(fits, "{}", notes[0]);
        }
    }

    #[test]
    fn settings_and_what_is_not_ours_are_left_alone() {
        for (name, value) in [
            ("PLIMSOLL__BUDGET__TOKENS", "40k"),
            ("PATH", "/bin"),
            ("PLIMSOL", "x"),
            ("PLIMSOLL_SERVICE_HOST", "10.0.0.1"),
            ("PLIMSOLL_SERVICE_PORT", "8787"),
            ("PLIMSOLL_SERVICE_PORT_HTTP", "8787"),
            ("PLIMSOLL_PORT", "tcp://10.0.0.1:8787"),
            ("PLIMSOLL_PORT_8787_TCP", "tcp://10.0.0.1:8787"),
            ("PLIMSOLL_PORT_8787_TCP_ADDR", "10.0.0.1"),
            ("PLIMSOLL_PROXY_SERVICE_HOST", "10.0.0.1"),
        ] {
            let one = [(name.to_owned(), value.to_owned())].into_iter();
            assert_eq!(unread(one), [""; 0], "{name}");
        }
    }
}
