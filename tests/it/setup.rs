//! `plimsoll setup` and `init`: what becomes of an agent's settings file, with everything around it,
//! and what becomes of it when the change is taken back.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::plimsoll;

/// Where each agent keeps its settings below a home, and a file as a person may have written it.
const FILES: [(&str, &str, &str); 5] = [
    (
        "opencode",
        ".config/opencode/opencode.jsonc",
        "// mine\n{\n  \"model\": \"anthropic/claude-x\", // why\n  \"provider\": {\"anthropic\": {\"options\": {\"timeout\": 1}}},\n}\n",
    ),
    (
        "codex",
        ".codex/config.toml",
        "# mine\nmodel = 'gpt-x' # why\n\n[projects.\"/p\"]\ntrust_level = \"trusted\"",
    ),
    (
        "claude",
        ".claude/settings.json",
        "{\n    \"env\": {\"FOO\": \"é\"}\r\n}",
    ),
    (
        "pi",
        ".pi/agent/models.json",
        "{\n\t\"providers\": {\n\t\t\"mine\": {\"baseUrl\": \"http://m/v1\", \"apiKey\": \"k\"}\n\t}\n}",
    ),
    (
        "mini",
        ".config/mini-swe-agent/.env",
        "MSWEA_MODEL_NAME='openai/gpt-x'\nOPENAI_API_KEY=k\n",
    ),
];

/// A home of its own.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = plimsoll(self.0.path());
        command
            .env_clear()
            .env("HOME", self.0.path())
            .args(arguments);
        command
    }

    /// The exit code, and everything that was said.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.command(arguments).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap(),
            String::from_utf8(said).unwrap(),
        )
    }

    #[track_caller]
    fn works(&self, arguments: &[&str]) -> String {
        let (code, said) = self.run(arguments);
        assert_eq!(code, 0, "{said}");
        said
    }

    fn write(&self, below: &str, text: &str) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Everything below it but the state directory: path, mode, and the target of a link or the bytes.
    fn everything(&self) -> Vec<(PathBuf, u32, Vec<u8>)> {
        let mut found = Vec::new();
        walk(self.0.path(), &mut found);
        found
    }
}

fn walk(directory: &Path, found: &mut Vec<(PathBuf, u32, Vec<u8>)>) {
    let mut entries: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.ends_with(".local") {
            continue;
        }
        let meta = path.symlink_metadata().unwrap();
        let held = if meta.is_symlink() {
            fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        } else if meta.is_dir() {
            walk(&path, found);
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        found.push((path, meta.permissions().mode(), held));
    }
}

#[test]
fn what_setup_changes_it_takes_back_byte_for_byte() {
    for (agent, file, text) in FILES {
        let home = Home::new();
        let path = home.write(file, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let before = home.everything();
        home.works(&["setup", agent, "--dry-run"]);
        assert_eq!(
            home.everything(),
            before,
            "{agent}: a dry run changes nothing"
        );

        let said = home.works(&["setup", agent]);
        let changed = fs::read_to_string(&path).unwrap();
        assert!(
            changed.contains("http://127.0.0.1:8787"),
            "{agent}: {changed}"
        );
        assert!(said.contains("plimsoll serve"), "{agent}: {said}");
        for line in text
            .lines()
            .filter(|line| line.contains("mine") || line.contains("why"))
        {
            let words = line.trim_end_matches(['}', ',', ' ']);
            assert!(
                changed.contains(words),
                "{agent}: {line} is kept: {changed}"
            );
        }
        let said = home.works(&["setup", agent]);
        assert!(said.contains("already"), "{agent}: {said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), changed, "{agent}");
        home.works(&["setup", agent, "--proxy", "http://127.0.0.1:9000/v1"]);
        let moved = fs::read_to_string(&path).unwrap();
        assert_eq!(moved, changed.replace(":8787", ":9000"), "{agent}");

        home.works(&["setup", agent, "--undo"]);
        assert_eq!(home.everything(), before, "{agent}");
        let said = home.works(&["setup", agent, "--undo"]);
        assert!(said.contains("changed nothing"), "{agent}: {said}");
        assert!(
            !home.path(".local/state/plimsoll/setup").exists(),
            "{agent}: no note is left"
        );
    }
}

#[test]
fn files_and_directories_that_were_not_there_are_gone_again() {
    for (agent, file, _) in FILES {
        let home = Home::new();
        home.works(&["setup", agent]);
        let made = if agent == "opencode" {
            ".config/opencode/opencode.json"
        } else {
            file
        };
        let mode = fs::metadata(home.path(made)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{agent}");
        home.works(&["setup", agent, "--undo"]);
        assert_eq!(home.everything(), [], "{agent}");
    }
}

#[test]
fn links_stay_links() {
    let home = Home::new();
    let target = home.write("dotfiles/claude.json", "{}");
    fs::create_dir(home.path(".claude")).unwrap();
    symlink(
        "../dotfiles/claude.json",
        home.path(".claude/settings.json"),
    )
    .unwrap();
    let before = home.everything();
    home.works(&["setup", "claude"]);
    assert!(fs::read_to_string(&target).unwrap().contains("8787"));
    home.works(&["setup", "claude", "--undo"]);
    assert_eq!(home.everything(), before);

    // One that leads nowhere yet.
    fs::remove_file(&target).unwrap();
    let before = home.everything();
    home.works(&["setup", "claude"]);
    assert!(fs::read_to_string(&target).unwrap().contains("8787"));
    home.works(&["setup", "claude", "--undo"]);
    assert_eq!(home.everything(), before);
}

#[test]
fn what_others_have_changed_since_stays() {
    let home = Home::new();
    let claude = home.path(".claude/settings.json");
    home.works(&["setup", "claude"]);
    // As the agent writes it, with a setting of its own.
    let mut settings: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&claude).unwrap()).unwrap();
    settings["model"] = "opus".into();
    fs::write(&claude, serde_json::to_string_pretty(&settings).unwrap()).unwrap();
    home.works(&["setup", "claude", "--undo"]);
    let left: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&claude).unwrap()).unwrap();
    assert_eq!(left, serde_json::json!({"model": "opus"}));

    let codex = home.write(
        ".codex/config.toml",
        "openai_base_url = \"http://mine/v1\"\n",
    );
    let said = home.works(&["setup", "codex"]);
    assert!(said.contains("--upstream http://mine/v1"), "{said}");
    let text = fs::read_to_string(&codex).unwrap();
    fs::write(
        &codex,
        text + "[projects.\"/p\"]\ntrust_level = \"trusted\"\n",
    )
    .unwrap();
    home.works(&["setup", "codex", "--undo"]);
    let left = fs::read_to_string(&codex).unwrap();
    assert_eq!(
        left,
        "openai_base_url = \"http://mine/v1\"\n[projects.\"/p\"]\ntrust_level = \"trusted\"\n"
    );

    // A value that somebody else has put there is not ours to take.
    home.works(&["setup", "codex"]);
    let text = fs::read_to_string(&codex)
        .unwrap()
        .replace("127.0.0.1:8787", "elsewhere");
    fs::write(&codex, &text).unwrap();
    let said = home.works(&["setup", "codex", "--undo"]);
    assert!(
        said.contains("elsewhere") && said.contains("it stays"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&codex).unwrap(), text);

    // A file that can't be read any more is left, and so is the note.
    home.works(&["setup", "claude"]);
    fs::write(&claude, "{ broken").unwrap();
    let (code, said) = home.run(&["setup", "claude", "--undo"]);
    assert!(code == 1 && said.contains("by hand"), "{said}");
    assert_eq!(fs::read_to_string(&claude).unwrap(), "{ broken");
    // One that is gone needs nothing.
    fs::remove_file(&claude).unwrap();
    home.works(&["setup", "claude", "--undo"]);
}

#[test]
fn a_file_that_can_not_be_read_is_refused_and_not_touched() {
    for (agent, file, text, told) in [
        (
            "claude",
            ".claude/settings.json",
            "{ \"env\": ",
            "was not changed",
        ),
        (
            "claude",
            ".claude/settings.json",
            "{\"env\": []}",
            "env is no object",
        ),
        ("codex", ".codex/config.toml", "\nmodel = ", "line 2"),
        (
            "codex",
            ".codex/config.toml",
            "model_provider = \"x\"",
            "--provider",
        ),
        (
            "opencode",
            ".config/opencode/opencode.json",
            "[]",
            "no object",
        ),
        (
            "pi",
            ".pi/agent/models.json",
            "{\"providers\": {\"openai\": 3}}",
            "openai is no object",
        ),
    ] {
        let home = Home::new();
        home.write(file, text);
        let before = home.everything();
        let (code, said) = home.run(&["setup", agent]);
        assert_eq!(code, 1, "{agent}: {said}");
        assert!(said.contains(told), "{agent}: {said}");
        assert_eq!(home.everything(), before, "{agent}");
        assert!(!home.path(".local").exists(), "{agent}: nothing is noted");
    }
    let home = Home::new();
    home.write(".claude/settings.json", "");
    fs::write(home.path(".claude/settings.json"), [0xff, 0xfe]).unwrap();
    let (code, said) = home.run(&["setup", "claude"]);
    assert!(code == 1 && said.contains("no UTF-8"), "{said}");
}

#[test]
fn a_directory_that_can_not_be_written_is_named() {
    let home = Home::new();
    home.write(".claude", "a file where a directory belongs");
    let (code, said) = home.run(&["setup", "claude"]);
    assert!(code == 1 && said.contains(".claude"), "{said}");
    let mut homeless = home.command(&["setup", "claude"]);
    let output = homeless.env_remove("HOME").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("set HOME"));
}

#[test]
fn copilot_is_given_lines_to_paste() {
    let home = Home::new();
    let said = home.works(&["setup", "copilot"]);
    assert!(
        said.contains("export COPILOT_PROVIDER_BASE_URL=http://127.0.0.1:8787/v1\n"),
        "{said}"
    );
    let said = home.works(&["setup", "copilot", "--provider", "anthropic"]);
    assert!(
        said.contains("export COPILOT_PROVIDER_TYPE=anthropic\n"),
        "{said}"
    );
    assert!(said.contains("BASE_URL=http://127.0.0.1:8787\n"), "{said}");
    assert_eq!(home.everything(), []);
}

#[test]
fn a_login_of_codex_decides_where_its_requests_go() {
    let account = r#"{"auth_mode": "chatgpt", "OPENAI_API_KEY": null, "tokens": {"access_token": "ey-secret"}}"#;
    let key = r#"{"auth_mode": "apikey", "OPENAI_API_KEY": "sk-secret"}"#;
    let chatgpt = "plimsoll serve --upstream https://chatgpt.com/backend-api/codex\n";
    for arguments in [&["setup", "codex"][..], &["setup", "codex", "--dry-run"]] {
        for (auth, is_chatgpt) in [(account, true), (key, false)] {
            let home = Home::new();
            let kept = home.write(".codex/auth.json", auth);
            let said = home.works(arguments);
            assert_eq!(said.contains(chatgpt), is_chatgpt, "{said}");
            assert_eq!(
                said.contains("logged in with ChatGPT"),
                is_chatgpt,
                "{said}"
            );
            assert_eq!(said.contains("plimsoll serve\n"), !is_chatgpt, "{said}");
            assert!(!said.contains("secret"), "{said}");
            assert_eq!(fs::read_to_string(kept).unwrap(), auth);
        }
    }
    // Who has an address of their own has chosen who sees the token.
    let home = Home::new();
    home.write(".codex/auth.json", account);
    home.write(
        ".codex/config.toml",
        "openai_base_url = \"http://mine/v1\"\n",
    );
    let said = home.works(&["setup", "codex"]);
    assert!(said.contains("--upstream http://mine/v1"), "{said}");
}

#[test]
fn a_run_of_codex_says_where_a_token_goes_before_it_starts() {
    let account = r#"{"OPENAI_API_KEY": null, "tokens": {"access_token": "ey-secret"}}"#;
    let key = r#"{"OPENAI_API_KEY": "sk-secret"}"#;
    let untried = "https://chatgpt.com/backend-api/codex";
    let refused = "is not for https://api.openai.com/v1";
    for (auth, chosen, wanted) in [
        (account, None, Some(untried)),
        (account, Some("https://api.openai.com/v1"), Some(refused)),
        (
            account,
            Some("http://127.0.0.1:9/v1"),
            Some("as you have chosen"),
        ),
        (key, None, None),
    ] {
        let home = Home::new();
        home.write(".codex/auth.json", auth);
        let program = home.write("bin/codex", "#!/bin/sh\necho started >&2\n");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let program = program.display().to_string();
        let mut arguments = vec!["run"];
        arguments.extend(chosen.iter().flat_map(|url| ["--upstream", url]));
        arguments.extend(["--", &program]);
        let said = home.works(&arguments);
        let (before, _) = said.split_once("started\n").unwrap();
        match wanted {
            Some(wanted) => assert!(before.contains(wanted), "{said}"),
            None => assert!(!said.contains("ChatGPT"), "{said}"),
        }
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn init_writes_what_it_finds_and_never_a_key() {
    let home = Home::new();
    fs::create_dir(home.path(".codex")).unwrap();
    let init = |arguments: &[&str]| {
        let mut command = home.command(&[&["init"], arguments].concat());
        let output = command.env("OPENAI_API_KEY", "sk-hidden").output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap(),
            String::from_utf8(said).unwrap(),
        )
    };
    let (code, said) = init(&[]);
    assert_eq!(code, 0, "{said}");
    for told in [
        "agents:  codex",
        "keys:    OPENAI_API_KEY",
        "plimsoll serve\n",
        "plimsoll setup codex",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    let file = home.path("config/plimsoll.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("sk-hidden") && !said.contains("sk-hidden"));
    // So a server that is started in another directory has the same store.
    assert!(text.contains("path = \"\""), "{text}");
    assert!(home.works(&["check"]).ends_with("ok\n"));

    let (code, said) = init(&[]);
    assert!(code == 1 && said.contains("--force"), "{said}");
    fs::write(&file, "mine").unwrap();
    assert_eq!(init(&[]).0, 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(init(&["--force"]).0, 0);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    let (_, said) = init(&["other.toml"]);
    assert!(
        said.contains("plimsoll serve --config other.toml"),
        "{said}"
    );
}

#[test]
fn shells_and_man_know_every_command() {
    let home = Home::new();
    let version = home.works(&["--version"]);
    assert!(
        version.starts_with(concat!("plimsoll ", env!("CARGO_PKG_VERSION"))),
        "{version}"
    );
    for shell in ["bash", "zsh", "fish"] {
        let script = home.works(&["completions", shell]);
        assert!(
            script.contains("setup") && script.contains("opencode"),
            "{shell}"
        );
    }
    home.works(&["man", "pages"]);
    for page in ["plimsoll.1", "plimsoll-setup.1", "plimsoll-store-gc.1"] {
        let text = fs::read_to_string(home.path("pages").join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
        for section in ["FILES", "\"EXIT STATUS\""] {
            assert!(text.contains(&format!(".SH {section}")), "{page}: {text}");
        }
        let has_examples = text.contains(".SH EXAMPLES");
        assert_eq!(has_examples, page != "plimsoll-store-gc.1", "{page}");
    }
}

/// What a command says on a terminal, which `script` makes. `$p` is the command's process.
#[cfg(target_os = "linux")]
fn on_a_terminal(home: &Home, arguments: &str, wait_for: &str) -> String {
    let said = home.path("said");
    let plimsoll = env!("CARGO_BIN_EXE_plimsoll");
    let line = format!(
        "{plimsoll} {arguments} & p=$!; n=0; until grep -q '{wait_for}' said || [ $n = 400 ]; \
         do sleep 0.05; n=$((n+1)); done; kill $p; wait $p"
    );
    let mut command = Command::new("script");
    command.current_dir(home.0.path()).env_clear();
    command
        .env("HOME", home.0.path())
        .env("PATH", std::env::var_os("PATH").unwrap());
    command.args(["-q", "-f", "-c", &line, "said"]);
    command.output().unwrap();
    fs::read_to_string(said).unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_is_told_where_to_point_an_agent_and_a_log_is_not() {
    let home = Home::new();
    let serve = "serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --upstream http://127.0.0.1:9/v1";
    let said = on_a_terminal(&home, serve, "stop: ");
    for told in [
        "plimsoll setup AGENT --proxy http://127.0.0.1:",
        "opencode, codex, claude",
        "/metrics",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    fs::write(home.path("json.toml"), "[log]\nformat = \"json\"\n").unwrap();
    let said = on_a_terminal(&home, &format!("{serve} --config json.toml"), "serving");
    assert!(
        said.contains("\"serving\"") && !said.contains("plimsoll setup"),
        "{said}"
    );

    let run = "run --upstream http://127.0.0.1:9/v1 -- sleep 0.1";
    let said = on_a_terminal(&home, run, "nothing was managed");
    assert!(said.contains("sleep talks to http://127.0.0.1:"), "{said}");
    let said = home.works(&["run", "--upstream", "http://127.0.0.1:9/v1", "--", "true"]);
    assert!(
        !said.contains("talks to"),
        "a pipe is told nothing more: {said}"
    );
}

/// An agent whose own settings come before its variables is told in the way that comes before those.
#[test]
fn run_comes_before_what_setup_wrote() {
    let home = Home::new();
    let program = |name: &str| {
        let path = home.write(
            &format!("bin/{name}"),
            "#!/bin/sh\nfor a in \"$@\"; do echo \"argument $a\"; done\n",
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let run = ["run", "--upstream", "http://127.0.0.1:9/v1", "--"];
    let (claude, pi) = (program("claude"), program("pi"));
    let said = home.works(&[&run[..], &[&claude, "-p"]].concat());
    assert!(!said.contains("--settings"), "{said}");
    home.works(&["setup", "claude"]);
    let said = home.works(&[&run[..], &[&claude, "-p"]].concat());
    assert!(
        said.contains("argument {\"env\":{\"ANTHROPIC_BASE_URL\":\"http://127.0.0.1:"),
        "{said}"
    );
    let said = home.works(&[&run[..], &[&pi, "-p"]].concat());
    assert!(
        said.contains("argument -e\n") && !said.contains("models.json"),
        "{said}"
    );
    home.works(&["setup", "pi"]);
    let said = home.works(&[&run[..], &[&pi, "-p"]].concat());
    assert!(said.contains("setup pi --undo"), "{said}");
    let said = home.works(&[&run[..], &[&pi, "list"]].concat());
    assert!(!said.contains("argument -e"), "{said}");
}
