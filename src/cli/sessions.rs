//! `plimsoll sessions`: lists the sessions of a serving process, follows them, and writes one as a line
//! for a status bar. Owns its flags and its forms. Reads the console's API, and never a store.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use futures_util::StreamExt as _;
use http::Method;
use serde_json::Value;

use super::health::{AdminArgs, AdminPort, silent};
use super::output::{counted, harmless_word};

/// How long the head of an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many rows are asked for at a time.
const PAGE: usize = 1000;
/// The cells of a gauge. The budget stands at four fifths, so that what is over it is seen.
const CELLS: u64 = 10;

/// Lists the sessions of the server on this machine, the newest first.
#[derive(Debug, Args)]
pub struct SessionsArgs {
    /// A session, by its name or the beginning of it.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Write the session's gauge as one line, for the status bar of an agent.
    #[arg(long, requires = "name", conflicts_with = "follow")]
    line: bool,
    /// Go on writing a line for each turn, until interrupted.
    #[arg(long)]
    follow: bool,
    /// How many sessions to list at most.
    #[arg(long, default_value_t = 50, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Lists, follows, or writes one line.
///
/// # Errors
/// If nobody answers, no session fits, or several do.
pub fn run(args: &SessionsArgs) -> anyhow::Result<ExitCode> {
    let port = args.admin.port()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(shown(args, &port))?;
    Ok(ExitCode::SUCCESS)
}

async fn shown(args: &SessionsArgs, port: &AdminPort) -> anyhow::Result<()> {
    let rows = match &args.name {
        Some(name) => vec![named(port, name).await?],
        None => listed(port, args.limit as usize, "").await?,
    };
    let mut out = std::io::stdout();
    if args.line {
        for row in &rows {
            writeln!(out, "{}", harmless_word(&line(row)))?;
        }
        return Ok(());
    }
    write!(out, "{}", table(&rows))?;
    if args.follow {
        follow(port, args.name.as_deref()).await?;
    }
    Ok(())
}

/// The newest sessions that fit what else is asked.
pub(super) async fn listed(
    port: &AdminPort,
    most: usize,
    asked: &str,
) -> anyhow::Result<Vec<Value>> {
    let mut rows: Vec<Value> = Vec::new();
    let mut cursor = String::new();
    while rows.len() < most {
        let limit = (most - rows.len()).min(PAGE);
        let page = get(port, &format!("/api/sessions?limit={limit}{asked}{cursor}")).await?;
        let found = page.get("sessions").and_then(Value::as_array);
        rows.extend(found.into_iter().flatten().cloned());
        match page.get("next").and_then(Value::as_str) {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    Ok(rows)
}

/// The session of a name, or the only one whose name begins so.
pub(super) async fn named(port: &AdminPort, name: &str) -> anyhow::Result<Value> {
    let page = get(port, &format!("/api/sessions?limit={PAGE}&q={name}")).await?;
    let rows = page.get("sessions").and_then(Value::as_array);
    let fits = |row: &&Value| text(row, "session").starts_with(&name.to_lowercase());
    let fitting: Vec<&Value> = rows.into_iter().flatten().filter(fits).collect();
    match fitting.as_slice() {
        [one] => Ok((*one).clone()),
        [] => anyhow::bail!("no session's name begins with {name}: `plimsoll sessions` lists them"),
        several => anyhow::bail!(
            "{} sessions' names begin with {name}: give more of it",
            several.len()
        ),
    }
}

async fn get(port: &AdminPort, path: &str) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&fetch(port, path, PATIENCE).await?)?)
}

/// What the server answers within that time, if it does not refuse.
pub(super) async fn fetch(
    port: &AdminPort,
    path: &str,
    patience: Duration,
) -> anyhow::Result<String> {
    let ask = port.request(Method::GET, path)?.send();
    let answered = tokio::time::timeout(patience, ask).await;
    let response = answered
        .with_context(|| format!("{} took longer than {patience:?}", port.url(path)))?
        .map_err(|_| silent(&port.url(path)))?;
    let status = response.status();
    let text = response.text().await?;
    if status.is_success() {
        return Ok(text);
    }
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let why = value.pointer("/error/message").and_then(Value::as_str);
    anyhow::bail!("{}", why.unwrap_or("the server refused"))
}

/// Writes a line for each turn, as it ends.
async fn follow(port: &AdminPort, name: Option<&str>) -> anyhow::Result<()> {
    let response = port.request(Method::GET, "/api/events")?.send().await;
    let response = response.context("the server has gone")?;
    anyhow::ensure!(
        response.status().is_success(),
        "too many readers listen already"
    );
    let mut body = response.bytes_stream();
    let mut read: Vec<u8> = Vec::new();
    while let Some(piece) = body.next().await {
        read.extend_from_slice(&piece.context("the server has gone")?);
        while let Some(end) = memchr::memmem::find(&read, b"\n\n") {
            let frame: Vec<u8> = read.drain(..end + 2).collect();
            let frame = String::from_utf8_lossy(&frame).into_owned();
            if let Some(row) = turn_of(&frame, name) {
                writeln!(std::io::stdout(), "{}", harmless_word(&line(&row)))?;
            }
        }
    }
    Ok(())
}

/// The row of a turn's frame, if it is one of the session that is followed.
fn turn_of(frame: &str, name: Option<&str>) -> Option<Value> {
    let field = |field: &str| frame.lines().find_map(|line| line.strip_prefix(field));
    field("event: ").filter(|event| *event == "turn")?;
    let data: Value = serde_json::from_str(field("data: ")?).ok()?;
    let row = data.get("row")?.clone();
    let fits = name.is_none_or(|name| text(&row, "session").starts_with(&name.to_lowercase()));
    fits.then_some(row)
}

pub(super) fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn count(row: &Value, field: &str) -> Option<u64> {
    row.get(field).and_then(Value::as_u64)
}

/// The gauge of a session as one line: `31.2k/40.0k ▕██████··│··▏ turn 47 · 5 passes · +$0.42`. Of one
/// that is only observed, it is of what was sent, and `would:` stands before what managing comes to.
fn line(row: &Value) -> String {
    let mut line = format!("{} ", text(row, "session").get(..8).unwrap_or_default());
    let (sent, net, would) = match text(row, "mode") {
        "observe" => ("in", "/projected/usd/net", "would: "),
        _ => ("out", "/saved/usd/net", ""),
    };
    match (count(row, sent), count(row, "budget")) {
        (Some(out), Some(tau)) => {
            let _ = write!(line, "{}/{} {}", short(out), short(tau), gauge(out, tau));
        }
        _ => line.push_str(&short(count(row, "view_tokens").unwrap_or(0))),
    }
    let _ = write!(line, " turn {}", count(row, "turn").unwrap_or(0));
    if let Some(passes) = count(row, "passes") {
        let _ = write!(line, " · {would}{}", counted(&passes, "pass"));
    }
    if let Some(saved) = row.pointer(net).and_then(Value::as_f64) {
        let sign = if saved < 0.0 { "−" } else { "+" };
        let _ = write!(line, " · {would}{sign}${:.2}", saved.abs());
    }
    line
}

/// How full a view is; the budget stands at four fifths.
fn gauge(out: u64, tau: u64) -> String {
    let line = CELLS * 4 / 5;
    let full = (out * line).div_ceil(tau.max(1)).min(CELLS);
    let mut gauge = String::from("▕");
    for cell in 0..CELLS {
        if cell == line {
            gauge.push('│');
        }
        gauge.push(if cell < full { '█' } else { '·' });
    }
    gauge.push('▏');
    gauge
}

fn short(tokens: u64) -> String {
    if tokens < 1000 {
        return tokens.to_string();
    }
    format!("{}.{}k", tokens / 1000, tokens % 1000 / 100)
}

/// The sessions as a table.
fn table(rows: &[Value]) -> String {
    if rows.is_empty() {
        return "no session yet\n".to_owned();
    }
    let mut table = String::new();
    for row in rows {
        let parent = text(row, "parent");
        let under = parent
            .get(..8)
            .map(|parent| format!(" · of {parent}"))
            .unwrap_or_default();
        let row = format!("{} · {}{under}", line(row), text(row, "model"));
        let _ = writeln!(table, "{}", harmless_word(&row));
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_gauge_shows_the_line_and_what_is_over_it() {
        assert_eq!(gauge(0, 100), "▕········│··▏");
        assert_eq!(gauge(50, 100), "▕████····│··▏");
        assert_eq!(gauge(100, 100), "▕████████│··▏");
        assert_eq!(gauge(101, 100), "▕████████│█·▏");
        assert_eq!(gauge(900, 100), "▕████████│██▏");
    }

    #[test]
    fn a_session_is_one_line_as_far_as_it_is_known() {
        let row = json!({"session": "0011223344556677", "out": 31_250, "budget": 40_000, "turn": 47,
            "passes": 5, "mode": "manage", "saved": {"usd": {"net": -0.424}}});
        assert_eq!(
            line(&row),
            "00112233 31.2k/40.0k ▕███████·│··▏ turn 47 · 5 passes · −$0.42"
        );
        let observed = json!({"session": "0011223344556677", "in": 101_936, "out": 33_357, "budget": 40_000, "turn": 47,
            "passes": 3, "mode": "observe", "saved": null, "projected": {"usd": {"net": 0.23}}});
        assert_eq!(
            line(&observed),
            "00112233 101.9k/40.0k ▕████████│██▏ turn 47 · would: 3 passes · would: +$0.23"
        );
        let old =
            json!({"session": "0011223344556677", "view_tokens": 900, "turn": 2, "out": null});
        assert_eq!(line(&old), "00112233 900 turn 2");
    }

    #[test]
    fn only_turns_of_what_is_followed_are_written() {
        let frame = "id: a-1\nevent: turn\ndata: {\"row\": {\"session\": \"00aa\"}}\n\n";
        assert!(turn_of(frame, None).is_some() && turn_of(frame, Some("00A")).is_some());
        assert!(turn_of(frame, Some("11")).is_none());
        assert!(turn_of("event: pass\ndata: {}\n\n", None).is_none());
    }
}
