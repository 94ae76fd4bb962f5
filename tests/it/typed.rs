//! Settings as people type them: taken as they are meant, or refused at the start with what to type.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::response::Response;
use clap::Parser as _;
use plimsoll::cli::Cli;
use plimsoll::config::{Config, Flags};
use plimsoll_core::turn::{AskedBudget, Profiles};
use plimsoll_ingress::overrides;
use plimsoll_proxy::upstream::BaseUrl;

use super::process::{Process, plimsoll};
use super::support::{EMPTY, PATIENCE, Proxy, client, soon, upstream};

/// Runs to the end: the exit code, and all that was said.
fn ends(directory: &Path, arguments: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = plimsoll(directory);
    command.args(arguments).envs(env.iter().copied());
    let mut child = command.spawn().unwrap();
    let patience = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > patience {
            // It serves, where it should have refused to.
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    let said = [stdout, stderr].concat();
    (status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn what_can_not_be_meant_is_refused_with_what_to_type() {
    let directory = tempfile::tempdir().unwrap();
    type Row<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
    let table: [Row<'_>; 12] = [
        (&["--log", "loud"], &[], "error, warn, info, debug or trace"),
        (
            &[],
            &[("PLIMSOLL__LOG__LEVEL", "loud")],
            "error, warn, info, debug or trace",
        ),
        (&["--log", "info,verbose"], &[], "`verbose` is not a level"),
        (&["--log", "hyper=debug"], &[], "\"warn,hyper=debug\""),
        (&["--budget", "40%"], &[], "x-plimsoll-budget: 40%"),
        (&["--budget", "3k"], &[], "at least 4000"),
        (
            &["--budget", "lots"],
            &[],
            "such as 80000, 80_000, 80k or 0.1M",
        ),
        (&["--listen", "127.0.0.1"], &[], "\"127.0.0.1:8787\""),
        (&["--listen", "*:80"], &[], "\"0.0.0.0:80\""),
        (
            &["--upstream", "api.openai.com/v1"],
            &[],
            "begins with https:// or http://",
        ),
        (
            &[
                "--listen",
                "18787",
                "--upstream",
                "http://localhost:18787/v1",
            ],
            &[],
            "the proxy's own address",
        ),
        (
            &[],
            &[("PLIMSOLL__BUDGET_TOKENS", "40k")],
            "PLIMSOLL__BUDGET__TOKENS",
        ),
    ];
    for (arguments, env, hint) in table {
        let arguments = [&["serve"], arguments].concat();
        let (code, said) = ends(directory.path(), &arguments, env);
        assert_eq!(code, Some(1), "{arguments:?} {env:?}: {said}");
        assert!(said.contains(hint), "{arguments:?} {env:?}: {said}");
    }
}

/// Every address is listened on, and the upstream is one of them that no text shows to be.
#[test]
fn an_upstream_that_turns_out_to_be_the_proxy_is_refused() {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // Sends nothing, and tells which address of this machine would; without a network there is none.
    let own = match socket.connect("192.0.2.1:9") {
        Ok(()) => socket.local_addr().unwrap().ip(),
        Err(_) => std::net::Ipv4Addr::LOCALHOST.into(),
    };
    let free = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let directory = tempfile::tempdir().unwrap();
    let (listen, base) = (format!("0.0.0.0:{port}"), format!("http://{own}:{port}/v1"));
    let arguments = [
        "serve",
        "--listen",
        &listen,
        "--admin",
        "127.0.0.1:0",
        "--upstream",
        &base,
    ];
    let (code, said) = ends(directory.path(), &arguments, &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the proxy's own address"), "{said}");
}

#[test]
fn check_refuses_what_serve_would() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("p.toml");
    for (text, env, hint) in [
        ("[log]\nlevel = \"loud\"\n", None, "p.toml:2: `log.level`"),
        (
            "",
            Some(("PLIMSOLL__LOG__LEVEL", "loud")),
            "PLIMSOLL__LOG__LEVEL",
        ),
        (
            "[log]\nlevel = \"loud\"\n",
            Some(("PLIMSOLL__LOG__LEVEL", "info")),
            "p.toml:2: `log.level`",
        ),
        (
            "[models]\nfamilies = \"no.toml\"\n",
            None,
            "p.toml:2: `models.families`: can't read no.toml",
        ),
        (
            "[models]\nfamilies = \"p.toml\"\n",
            None,
            "p.toml:2: `models.families`: p.toml: ",
        ),
        (
            "[upstream]\nbase_url = \"http://127.0.0.1:8787\"\n",
            None,
            "p.toml:2: `upstream.base_url`: is the proxy's own address",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let env: Vec<_> = env.into_iter().collect();
        for arguments in [&["check", "p.toml"][..], &["check", "--config", "p.toml"]] {
            let (code, said) = ends(directory.path(), arguments, &env);
            assert_eq!(code, Some(1), "{text}: {said}");
            assert!(said.contains(hint), "{text}: {said}");
        }
    }
}

#[test]
fn check_takes_what_people_write() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("p.toml");
    for text in [
        "[server]\nlisten = 8080",
        "[server]\nlisten = \":8080\"\nadmin = \"localhost:9090\"",
        "[server]\nlisten = \"[::1]:8787\"",
        "[budget]\ntokens = \"40k\"\nimplicit_tokens = \"2k\"",
        "[log]\nlevel = \"warn, plimsoll=debug\"",
        "[upstream]\nbase_url = \"https://api.openai.com/v1/chat/completions\"",
        "[upstream]\nbase_url = \"https://api.anthropic.com/\"",
    ] {
        std::fs::write(&file, text).unwrap();
        for arguments in [&["check", "p.toml"][..], &["check", "--config", "p.toml"]] {
            let (code, said) = ends(directory.path(), arguments, &[]);
            assert_eq!((code, said.as_str()), (Some(0), "p.toml: ok\n"), "{text}");
        }
    }
    std::fs::create_dir(directory.path().join("config")).unwrap();
    std::fs::rename(&file, directory.path().join("config/plimsoll.toml")).unwrap();
    let said = ends(directory.path(), &["check"], &[]);
    assert_eq!(said, (Some(0), "config/plimsoll.toml: ok\n".to_owned()));
    let stray = [("PLIMSOLL_BUDGET", "40000")];
    let (code, said) = ends(directory.path(), &["check"], &stray);
    assert_eq!(code, Some(0));
    assert!(said.contains("PLIMSOLL__BUDGET__TOKENS"), "{said}");
}

/// An upstream that says which path it was asked for.
async fn echo() -> std::net::SocketAddr {
    upstream(
        |request: Request| async move { Response::new(request.uri().path().to_owned().into()) },
    )
    .await
}

#[tokio::test]
async fn an_upstream_is_reached_however_its_base_is_written() {
    let echo = echo().await;
    for (base, models) in [
        ("/v1", "/v1/models"),
        ("/v1/", "/v1/models"),
        ("", "/v1/models"),
        ("/", "/v1/models"),
        ("/v1/chat/completions", "/v1/models"),
        ("/v1/responses", "/v1/models"),
        ("/api/v1/messages/", "/api/v1/models"),
        ("/v4", "/v4/models"),
    ] {
        let proxy = Proxy::with(echo, |config| {
            config.upstream.base_url = BaseUrl::parse(&format!("http://{echo}{base}")).unwrap();
        })
        .await;
        let answer = client().get(proxy.url("/v1/models")).send();
        assert_eq!(
            soon(answer).await.unwrap().text().await.unwrap(),
            models,
            "{base}"
        );
    }
}

#[tokio::test]
async fn a_server_takes_short_forms_and_says_which_variables_it_does_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["--budget", "40k", "--log", "info,plimsoll=debug"];
    let env = [
        ("PLIMSOLL_BUDGET", "1"),
        ("PLIMSOLL_LISTEN", "x"),
        ("PLIMSOLL_SERVICE_HOST", "10.0.0.1"),
    ];
    let process = Process::start(directory.path(), echo().await, &arguments, &env);
    let request = client().post(process.url("/v1/chat/completions"));
    let request = request.header("x-plimsoll-budget", "5k").body(EMPTY);
    assert_eq!(soon(request.send()).await.unwrap().status(), 200);
    process.signal("-TERM");
    let before = process.before.clone();
    assert_eq!(process.end().await.0, Some(0));
    assert!(before.contains("PLIMSOLL__BUDGET__TOKENS"), "{before}");
    assert!(before.contains("PLIMSOLL__SERVER__LISTEN"), "{before}");
    assert!(!before.contains("SERVICE_HOST"), "{before}");
}

/// Where a size can stand: what each place reads it as, or how it refuses it.
fn sizes(text: &str) -> Vec<(&'static str, Result<u32, String>)> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plimsoll.toml");
    let ceiling = |settings: &str, budget: Option<&str>, env: &[(&str, &str)]| {
        std::fs::write(&file, settings).unwrap();
        let flags = Flags {
            config: Some(file.clone()),
            budget: budget.map(str::to_owned),
            ..Flags::default()
        };
        let env = env
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        let config = Config::load(&flags, env).map_err(|error| error.to_string())?;
        Ok(config.budget.ceiling)
    };
    let header = || {
        let headers = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("x-plimsoll-budget"),
            text.parse().unwrap(),
        )]);
        match overrides(&headers, &Profiles::default())
            .map_err(|error| error.to_string())?
            .budget
        {
            Some(AskedBudget::Tokens(tokens)) => Ok(tokens),
            other => Err(format!("{other:?}")),
        }
    };
    let lab = |command: &str, flag: &str| {
        let asked = Cli::try_parse_from(["plimsoll", command, &format!("{flag}={text}")]);
        asked.map_err(|error| error.to_string())
    };
    let mut read = vec![
        (
            "file",
            ceiling(&format!("[budget]\ntokens = \"{text}\""), None, &[]),
        ),
        (
            "variable",
            ceiling("", None, &[("PLIMSOLL__BUDGET__TOKENS", text)]),
        ),
        ("flag", ceiling("", Some(text), &[])),
        ("header", header()),
    ];
    // What these read is their own affair, so only whether they take it is compared.
    let of_file = read[0].1.clone();
    for (command, flag) in [
        ("replay", "--budget"),
        ("tune", "--budgets"),
        ("demo", "--budget"),
    ] {
        let taken = lab(command, flag).map(|_| of_file.clone().unwrap_or_default());
        read.push((command, taken));
    }
    read
}

#[test]
fn a_size_is_taken_or_refused_alike_wherever_it_is_written() {
    for (text, tokens) in [
        ("80000", 80_000),
        ("80_000", 80_000),
        ("1_000_000", 1_000_000),
        ("40k", 40_000),
        ("40K", 40_000),
        ("4.5k", 4_500),
        ("0.1M", 100_000),
        ("1.234567m", 1_234_567),
    ] {
        for (place, read) in sizes(text) {
            assert_eq!(read, Ok(tokens), "{place}: {text}");
        }
    }
    for text in [
        "3999",
        "3k",
        "80000.5",
        "80000.0",
        "80000.",
        "1e6",
        "8e4",
        "80,000",
        "80_",
        "80__000",
        "_80000",
        "80000_",
        "4.5_0k",
        "4.5555k",
        ".9M",
        "40kk",
        "40kb",
        "40 k",
        "k",
        "much",
        "-80000",
        "+80000",
        "5000000000",
        "5000M",
        "0x13880",
        "nan",
    ] {
        for (place, read) in sizes(text) {
            let refusal = read.expect_err(&format!("{place}: {text}"));
            let say = "must be a whole number of tokens, at least 4000, such as 80000, 80_000, 80k or 0.1M";
            assert!(refusal.contains(say), "{place}: {text}: {refusal}");
        }
    }
}
