//! Sources, their order, and what is refused.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_core::commit::Floor;
use plimsoll_core::turn::{Guidance, Mode, ProtectRecent};
use plimsoll_store::Retention;

use super::form::Form;
use super::*;

fn with_file(text: &str, flags: Flags, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.toml");
    std::fs::write(&path, text).unwrap();
    let flags = Flags {
        config: Some(path),
        ..flags
    };
    Config::load(
        &flags,
        env.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

pub(super) fn good(text: &str) -> Config {
    with_file(text, Flags::default(), &[]).unwrap()
}

/// Every problem as `place: message`, the directory of the file left out.
pub(super) fn problems(text: &str, env: &[(&str, &str)]) -> Vec<String> {
    match with_file(text, Flags::default(), env) {
        Err(ConfigError::Invalid(found)) => found
            .iter()
            .map(|problem| match &problem.origin {
                SettingSource::File { line, .. } => format!("{line}: {}", problem.message),
                SettingSource::Env(_) | SettingSource::Flag(_) | SettingSource::Default => {
                    problem.to_string()
                }
            })
            .collect(),
        other => panic!("expected problems, got {other:?}"),
    }
}

#[test]
fn the_shipped_file_is_the_defaults() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join(DEFAULT_FILE);
    assert_eq!(Config::check(&shipped).unwrap(), good(""));
}

#[test]
fn the_shipped_file_has_every_setting() {
    let shipped = include_str!("../../config/plimsoll.toml");
    let shown: toml::Table = shipped.parse().unwrap();
    let mut layers = Layers::default();
    layers.file(Path::new("p.toml"), "[rungs.cwl]");
    let (given, problems) = layers.finish();
    let known = sections::read(given, problems).1.known;
    let own = known
        .iter()
        .filter(|(_, form)| **form != Form::OtherName)
        .map(|(place, _)| place)
        .filter(|(section, _)| !section.is_empty() && !section.starts_with("profiles"));
    let mut seen = 0;
    for (section, name) in own {
        // Sections that an operator names are shown as comments.
        let is_shown = match section.as_str() {
            "rungs.cwl" => shipped.contains(&format!("# {name} = ")),
            section => shown[section].get(name).is_some(),
        };
        assert!(is_shown, "[{section}] {name} is not documented");
        seen += 1;
    }
    assert!(seen > 80, "all settings were seen");
}

#[test]
fn later_sources_win() {
    let text = "[server]\nlisten = \"127.0.0.1:1\"\nadmin = \"127.0.0.1:2\"\n[budget]\ntokens = 5000\n[log]\nlevel = \"warn\"";
    let env = [
        ("PLIMSOLL__SERVER__LISTEN", "127.0.0.1:3"),
        ("PLIMSOLL__BUDGET__TOKENS", "6000"),
        ("PLIMSOLL__TENANT__KEY", "12345678901234567890123456789012"),
        ("PLIMSOLL__TOOLS__BULK", "[\"a*\"]"),
        ("PLIMSOLL__DELIMITER__GUIDANCE", "false"),
        ("PLIMSOLL__STORE__PATH", "/x"),
        ("PATH", "/bin"),
        ("PLIMSOLL_LOG", "nonsense"),
    ];
    let flags = Flags {
        budget: Some("7k".to_owned()),
        data: Some("/y".to_owned()),
        ..Flags::default()
    };
    let config = with_file(text, flags, &env).unwrap();
    assert_eq!(config.server.listen, SocketAddr::from(([127, 0, 0, 1], 3)));
    assert_eq!(config.server.admin, SocketAddr::from(([127, 0, 0, 1], 2)));
    assert_eq!(config.budget.ceiling, 7_000);
    assert_eq!(config.log.level, "warn");
    assert_eq!(
        config.tenant,
        TenantKey::Given(Secret::new("12345678901234567890123456789012"))
    );
    assert_eq!(config.tools.bulk, ["a*"]);
    assert_eq!(config.delimiter.guidance, Guidance::Off);
    assert_eq!(config.store.path, PathBuf::from("/y"));
    assert_eq!(config.store.backend, Backend::Sled);
}

#[test]
fn a_value_of_the_wrong_kind_is_told_although_a_later_source_wins() {
    let text = "[server]\ndrain = 10\n[budget]\npolicy = \"cwl\"";
    let env = [
        ("PLIMSOLL__SERVER__DRAIN", "10s"),
        ("PLIMSOLL__BUDGET__POLICIES", "repeat+cwl"),
    ];
    let found = problems(text, &env);
    let fits = found.len() == 1
        && found[0].starts_with("2: `server.drain`: must be a text in quotes, not 10");
    assert!(fits, "{found:?}");
    let one = |env: &[_]| with_file("[budget]\npolicy = \"cwl\"", Flags::default(), env);
    let ladder = |env: &[_]| one(env).unwrap().budget.ladder;
    assert_ne!(ladder(&env), ladder(&[]), "both names are of one setting");
}

#[test]
fn every_flag_has_its_setting() {
    let text = |text: &str| Some(text.to_owned());
    let flags = Flags {
        config: None,
        listen: text("0.0.0.0:1"),
        admin: text("0.0.0.0:2"),
        upstream: text("http://h/v1/"),
        data: text("/d"),
        fallback_data: Some(PathBuf::from("/f")),
        budget: text("4000"),
        log: text("warn,plimsoll=debug"),
    };
    let config = with_file("", flags, &[]).unwrap();
    assert_eq!(config.server.listen.port(), 1);
    assert_eq!(config.server.admin.port(), 2);
    assert_eq!(config.upstream.base_url.as_str(), "http://h/v1");
    assert_eq!(config.store.path, PathBuf::from("/d"));
    assert_eq!(config.budget.ceiling, 4_000);
    assert_eq!(config.log.level, "warn,plimsoll=debug");
}

#[test]
fn values_of_several_kinds_are_read() {
    let config = good(
        "[server]\nbody_cap = 2048\ndrain = \"1m\"\n[budget]\nfloor = 0.7\nprotect_recent = 100\nmode = \"observe\"\n\
         [delimiter]\nguidance = \"say it\"\n[store]\nbackend = \"memory\"\nwait = \"0ms\"\nread_wait = \"1s\"\nkeep_records = \"90d\"\nkeep_content = \"forever\"\nmax_bytes = \"2GiB\"\n[models]\nfamilies = \"config/models.toml\"",
    );
    assert_eq!(config.server.body_cap, 2048);
    assert_eq!(config.server.drain, Duration::from_secs(60));
    assert_eq!(config.budget.floor, Floor::Fraction(0.7));
    assert_eq!(config.budget.protect_recent.tokens(4_000), 100);
    assert_eq!(config.budget.mode, Mode::Observe);
    assert_eq!(
        config.delimiter.guidance,
        Guidance::Text("say it".to_owned())
    );
    assert_eq!(config.store.backend, Backend::Memory);
    assert_eq!(config.store.wait, Duration::ZERO);
    assert_eq!(config.store.read_wait, Duration::from_secs(1));
    let kept = Retention {
        records: Some(Duration::from_secs(90 * 86_400)),
        content: None,
        most_bytes: Some(2 << 30),
    };
    assert_eq!(config.store.retention, kept);
    for none in ["0", "\"unlimited\""] {
        let config = good(&format!("[store]\nmax_bytes = {none}"));
        assert_eq!(config.store.retention, Retention::default());
    }
    assert_eq!(
        config.models.families,
        Some(PathBuf::from("config/models.toml"))
    );
    assert_eq!(
        good("[budget]\nfloor = \"budget\"").budget.floor,
        Floor::Ceiling
    );
}

#[test]
fn values_are_read_as_people_write_them() {
    let table = [
        ("[server]\nlisten = 8787", "127.0.0.1:8787"),
        ("[server]\nlisten = \"8787\"", "127.0.0.1:8787"),
        ("[server]\nlisten = \":80\"", "127.0.0.1:80"),
        ("[server]\nlisten = \"localhost:80\"", "127.0.0.1:80"),
        ("[server]\nlisten = \"Localhost:80\"", "127.0.0.1:80"),
        ("[server]\nlisten = \"[::1]:80\"", "[::1]:80"),
        ("[server]\nlisten = \" 0.0.0.0:80 \"", "0.0.0.0:80"),
    ];
    for (text, address) in table {
        assert_eq!(good(text).server.listen, address.parse().unwrap(), "{text}");
    }
    for (text, meant) in [
        ("127.0.0.1", "\"127.0.0.1:8787\""),
        ("0.0.0.0", "\"0.0.0.0:8787\""),
        ("*:80", "\"0.0.0.0:80\""),
        ("localhost", "\"127.0.0.1:8787\""),
        ("http://127.0.0.1:80/", "\"127.0.0.1:80\""),
        ("http://localhost:80", "\"127.0.0.1:80\""),
        ("::1", "\"[::1]:8787\""),
        ("::1:8080", "\"[::1]:8080\""),
        ("[::1]", "\"[::1]:8787\""),
        ("99999", "\"127.0.0.1:8787\""),
        ("host.example:80", "\"127.0.0.1:8787\""),
        ("", "\"127.0.0.1:8787\""),
    ] {
        let found = problems(&format!("[server]\nlisten = \"{text}\""), &[]);
        assert!(
            found[0].contains(&format!("like {meant}")),
            "{text}: {found:?}"
        );
    }
    for (text, tokens) in [
        ("40000", 40_000),
        ("\"40k\"", 40_000),
        ("\"40K\"", 40_000),
        ("\"0.1M\"", 100_000),
        ("\"12.5k\"", 12_500),
        ("\"80_000\"", 80_000),
    ] {
        let config = good(&format!(
            "[budget]\ntokens = {text}\nprotect_recent = \"2k\""
        ));
        assert_eq!(config.budget.ceiling, tokens, "{text}");
        assert_eq!(config.budget.protect_recent.tokens(tokens), 2_000);
    }
    for (name, value) in [
        ("PLIMSOLL__SERVER__LISTEN", "80"),
        ("PLIMSOLL__SERVER__LISTEN", ":80"),
        ("PLIMSOLL__BUDGET__TOKENS", "40k"),
        ("PLIMSOLL__PROFILES__SMALL__TOKENS", "8k"),
    ] {
        with_file("", Flags::default(), &[(name, value)]).unwrap();
    }
}

#[test]
fn a_commands_own_place_gives_way_to_every_source() {
    let flags = |data: Option<&str>| Flags {
        data: data.map(str::to_owned),
        fallback_data: Some(PathBuf::from("/f")),
        ..Flags::default()
    };
    let path =
        |text: &str, flags, env: &[(&str, &str)]| with_file(text, flags, env).unwrap().store.path;
    let file = "[store]\npath = \"./data\"";
    assert_eq!(path("", flags(None), &[]), PathBuf::from("/f"));
    assert_eq!(path(file, flags(None), &[]), PathBuf::from("./data"));
    let env = [("PLIMSOLL__STORE__PATH", "/e")];
    assert_eq!(path(file, flags(None), &env), PathBuf::from("/e"));
    assert_eq!(path(file, flags(Some("/d")), &env), PathBuf::from("/d"));
}

#[test]
fn protection_follows_the_ceiling() {
    assert_eq!(ProtectRecent::Auto.tokens(80_000), 8_000);
    assert_eq!(ProtectRecent::Auto.tokens(4_000), 800);
    assert_eq!(ProtectRecent::Tokens(9_000).tokens(4_000), 4_000);
}

#[test]
fn every_problem_is_told_with_its_line() {
    let text = "[server]\nlisten = \"here\"\nbody_capp = 3\n\n[budgett]\ntokens = 1\n[budget]\ntokens = \"much\"\n\
                floor = 2.0\n[log]\nformat = \"xml\"\n";
    let wanted = [
        "2: `server.listen`: `here` is not an address; write one like \"127.0.0.1:8787\", or a port alone for this machine",
        "3: unknown key `server.body_capp`; did you mean `server.body_cap`?",
        "6: unknown section `budgett`; did you mean `budget`?",
        "8: `budget.tokens`: must be a whole number of tokens, at least 4000, such as 80000, 80_000, 80k or 0.1M",
        "9: `budget.floor`: must be auto, budget, or a fraction greater than 0 and at most 1, such as 0.7",
        "11: `log.format`: `xml` is not one of \"text\", \"json\"",
    ];
    assert_eq!(problems(text, &[]), wanted);
}

#[test]
fn each_limit_refuses() {
    let table = [
        ("[server]\nmax_in_flight = 0", "at least 1"),
        ("[server]\nbody_cap = \"1 cup\"", "not a size"),
        ("[server]\nbody_cap = 12", "at least 1KiB"),
        ("[server]\nhosts = [\"http://a\"]", "without a scheme"),
        ("[server]\norigins = [\"a.example\"]", "not an origin"),
        ("[server]\ndrain = \"10\"", "not a duration"),
        ("[server]\ndrain = 10", "must be a text in quotes, not 10"),
        (
            "[server]\nadmin = \"127.0.0.1:8787\"",
            "must not be the address",
        ),
        ("[upstream]\nbase_url = \"api.openai.com\"", "must be a URL"),
        (
            "[upstream]\nbase_url = \"https://u:p@h\"",
            "no user, password",
        ),
        ("[upstream]\nretries = 11", "at most 10"),
        ("[upstream]\nretry_statuses = [404]", "408, 429 and 5xx"),
        ("[upstream]\nretry_for = \"10\"", "\"off\""),
        ("[upstream]\nretry_for = \"0s\"", "greater than zero"),
        ("[upstream]\nretry_for = \"25h\"", "24h"),
        ("[upstream]\nidle_timeout = \"0s\"", "greater than zero"),
        ("[budget]\ntokens = 3999", "at least 4000"),
        ("[budget]\ntokens = -1", "such as 80000"),
        ("[budget]\ntokens = \"40%\"", "x-plimsoll-budget: 40%"),
        ("[budget]\ntokens = \"3k\"", "at least 4000"),
        ("[budget]\ntokens = 80000.5", "such as 80000"),
        ("[budget]\nimplicit_tokens = \"x\"", "at least 500"),
        ("[models]\nfamilies = \"no.toml\"", "can't read no.toml"),
        ("[models]\nfamilies = \"Cargo.toml\"", "Cargo.toml: "),
        (
            "[upstream]\nbase_url = \"http://localhost:8787/v1\"",
            "(`server.listen`)",
        ),
        (
            "[upstream]\nbase_url = \"http://127.0.0.1:9187\"",
            "(`server.admin`)",
        ),
        ("[budget]\nmin_floor = 0.0", "fraction"),
        (
            "[budget]\nceiling = 5000",
            "2: `budget.ceiling`: is called `tokens` now",
        ),
        (
            "[budget]\nfloor = \"ceiling\"",
            "`ceiling` is called `budget` now",
        ),
        ("[budget]\nfloor = \"low\"", "auto, budget"),
        ("[budget]\nprotect_recent = 80000", "below the budget"),
        ("[budget]\nprotect_recent = -1", "or \"auto\""),
        ("[budget]\nunmet = \"panic\"", "\"surface\", \"refuse\""),
        (
            "[budget]\nmode = \"on\"",
            "\"manage\", \"observe\", \"off\"",
        ),
        ("[partitions]\nmessages = 1.5", "from 0 to 1"),
        ("[partitions]\nmessages = 0.9\nreserve = 0.2", "at most 1"),
        ("[partitions]\nreserve = 0.2", "must be above 0"),
        (
            "[rungs.prune]\nfloor = 0.5",
            "`prune` is not one of \"repeat\", \"admit\"",
        ),
        ("[rungs.keep]\ntools = [\"a\"]", "`keep` is not one of"),
        ("[rungs.cwl]\nfloor = 0.0", "fraction"),
        ("[rungs.admit]\nfloor = 0.5", "evicts nothing in passes"),
        (
            "[rungs.cwl]\nroles = [\"user\"]",
            "`user` is not one of \"assistant\", \"tool\"",
        ),
        ("[rungs.cwl]\nfiles = [\"\"]", "must not be empty"),
        ("[rungs.cwl]\npaths = [\"a\"]", "unknown key"),
        ("[delimiter]\nhops = 0", "between 1 and 64"),
        ("[delimiter]\nguidance = 3", "true, false or a text"),
        ("[tools]\nbulk = [\"[\"]", "not a glob"),
        (
            "[store]\nbackend = \"mongo\"",
            "\"sled\", \"memory\", \"redis\"",
        ),
        (
            "[store]\nbackend = \"redis\"",
            "must name the server, like redis://127.0.0.1:6379",
        ),
        (
            "[store]\nbackend = \"redis\"\nurl = \"redis://127.0.0.1\"",
            "set PLIMSOLL__TENANT__KEY",
        ),
        (
            "[store]\nurl = \"redis://127.0.0.1, http://hunter2@host\"",
            "number 2 is not a URL like redis://",
        ),
        ("[store]\nprefix = \"a*\"", "1 to 64 letters, digits"),
        ("[store]\ncache_mb = 1", "between 8 and"),
        ("[store]\nkeep_records = \"1d\"", "at least \"2d\""),
        ("[store]\nkeep_content = \"90h\"", "not a number of days"),
        ("[store]\nkeep_evicted = true", "say for how long"),
        (
            "[compaction]\nrequests = [\"Summary:\"]",
            "at least 16 characters",
        ),
        ("[store]\nkeep_records = \"40000d\"", "at most \"36500d\""),
        ("[store]\nmax_bytes = \"1MiB\"", "at least 64MiB"),
        ("[store]\nmax_bytes = \"much\"", "\"unlimited\""),
        ("[log]\nlevel = \"=loud\"", "not a level"),
        (
            "[log]\nlevel = \"loud\"",
            "error, warn, info, debug or trace",
        ),
        ("[tenant]\nkey = \"short\"", "at least 32"),
        ("[profiles.a]\ntokens = 1", "at least 4000"),
        ("[profiles.a]\nlisten = \"x\"", "unknown key"),
        (
            "[store.path]\nx = 1",
            "must be a text in quotes, not a section",
        ),
        ("server = 3", "must be a section, not 3"),
        ("profiles = 3", "must be a section, not 3"),
        ("[profiles]\na = 3", "must be a section, not 3"),
        ("[rungs]\ncwl = 3", "must be a section, not 3"),
        ("nothing = 3", "unknown"),
        ("[sever]", "did you mean `server`"),
        ("[server\n", "expected"),
        ("a = 1\na = 2", "duplicate"),
    ];
    for (text, hint) in table {
        let found = problems(text, &[]);
        assert!(
            found.len() == 1 && found[0].contains(hint),
            "{text:?}: {found:?}"
        );
    }
}

#[test]
fn problems_of_variables_name_them() {
    let table = [
        (
            "PLIMSOLL__BUDGET__TOKENS",
            "lots",
            "`budget.tokens`: must be a whole number",
        ),
        (
            "PLIMSOLL__BUDGET__TOKENS",
            "17",
            "`budget.tokens`: must be a whole number of tokens, at least 4000",
        ),
        (
            "PLIMSOLL__BUDGET__TOEKNS",
            "5000",
            "did you mean `budget.tokens`",
        ),
        (
            "PLIMSOLL__BUDGET__CEILING",
            "5000",
            "`budget.ceiling`: is called `tokens` now",
        ),
        ("PLIMSOLL__BUGDET__TOKENS", "5000", "did you mean `budget`"),
        (
            "PLIMSOLL__LISTEN",
            "x",
            "did you mean PLIMSOLL__SERVER__LISTEN",
        ),
        (
            "PLIMSOLL__BUDGET_TOKENS",
            "40k",
            "did you mean PLIMSOLL__BUDGET__TOKENS",
        ),
        ("PLIMSOLL__BUDGE__X", "x", "did you mean `budget`"),
        ("PLIMSOLL__", "x", "unknown"),
    ];
    for (name, value, hint) in table {
        let found = problems("", &[(name, value)]);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert!(
            found[0].starts_with(name) && found[0].contains(hint),
            "{found:?}"
        );
    }
}

#[test]
fn a_named_file_must_exist() {
    let flags = Flags {
        config: Some(PathBuf::from("/nowhere/p.toml")),
        ..Flags::default()
    };
    let error = Config::load(&flags, []).unwrap_err();
    assert!(error.to_string().contains("/nowhere/p.toml"), "{error}");
}

#[test]
fn secrets_do_not_show() {
    let config = good("[tenant]\nkey = \"0123456789abcdef0123456789abcdef\"");
    assert!(!format!("{config:?}").contains("0123456789abcdef"));
    let found = problems(
        "[tenant]\nkey = \"short-secret\"",
        &[("PLIMSOLL__TENANT__KEY", "tiny-secret")],
    );
    assert!(!found.concat().contains("secret`"), "{found:?}");
    assert!(!found.concat().contains("tiny-secret"), "{found:?}");
    let wrong_type = problems("[tenant]\nkey = 31415926", &[]);
    assert!(!wrong_type.concat().contains("31415926"), "{wrong_type:?}");
}

#[test]
fn a_token_of_the_admin_listener_comes_from_one_place_and_does_not_show() {
    let token = "0123456789abcdef0123456789abcdef";
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("token_file = \"{}\"", path.display())
    };
    let kept = file("kept", &format!("{token}\n"));
    for setting in [format!("token = \"{token}\""), kept.clone()] {
        let config = good(&format!("[admin]\n{setting}"));
        let found = config.server.admin_token.as_ref().unwrap();
        assert_eq!(found.expose(), token);
        assert!(!format!("{config:?}").contains(token));
    }
    assert_eq!(
        good("[admin]\ntoken = \"\"\ntoken_file = \"\"")
            .server
            .admin_token,
        None
    );
    for (setting, told) in [
        ("token = \"short-secret\"".to_owned(), "at least 32"),
        (file("short", "short-secret"), "at least 32"),
        (file("empty", "\n"), "is empty"),
        (
            "token_file = \"/nowhere/token\"".to_owned(),
            "can't read /nowhere/token",
        ),
        (format!("token = \"{token} secret\""), "no spaces"),
        (format!("token = \"{token}\"\n{kept}"), "give one of them"),
    ] {
        let found = problems(&format!("[admin]\n{setting}"), &[]).concat();
        assert!(
            found.contains(told) && !found.contains("secret"),
            "{told}: {found}"
        );
    }
}

#[test]
fn keys_of_the_seal_are_long_and_do_not_show() {
    let key = |last: char| format!("0123456789abcdef0123456789abcde{last}");
    let text = format!(
        "[store]\nseal_key = \"{}\"\nseal_key_previous = \"{} , {}\"",
        key('a'),
        key('b'),
        key('c')
    );
    let config = good(&text);
    assert_eq!(config.store.seal_key, Some(Secret::new(key('a'))));
    let previous = [key('b'), key('c')].map(Secret::new);
    assert_eq!(config.store.seal_key_previous, previous);
    assert!(!format!("{config:?}").contains("0123456789abcdef"));
    assert_eq!(good("[store]\nseal_key = \"\"").store.seal_key, None);
    for setting in [
        "seal_key = \"short-secret\"".to_owned(),
        format!("seal_key_previous = \"{},short-secret\"", key('b')),
    ] {
        let found = problems(&format!("[store]\n{setting}"), &[]).concat();
        assert!(
            found.contains("at least 32") && !found.contains("short-secret"),
            "{found}"
        );
    }
}

#[test]
fn units_are_read_and_never_guessed() {
    for (text, millis) in [
        ("250ms", 250),
        ("10s", 10_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        (" 2 s ", 2_000),
    ] {
        assert_eq!(
            units::duration(text),
            Ok(Duration::from_millis(millis)),
            "{text}"
        );
    }
    for text in [
        "",
        "10",
        "s",
        "1.5s",
        "-1s",
        "1d",
        "99999999999999999999s",
        "18446744073709551615h",
    ] {
        assert!(units::duration(text).is_err(), "{text}");
    }
    for (text, size) in [
        ("7", 7),
        ("7B", 7),
        ("1KiB", 1024),
        ("64MiB", 64 << 20),
        ("1GiB", 1 << 30),
    ] {
        assert_eq!(units::bytes(text), Ok(size), "{text}");
    }
    for text in ["", "MiB", "1MB", "-1", "1.5MiB", "99999999999999GiB"] {
        assert!(units::bytes(text).is_err(), "{text}");
    }
}
