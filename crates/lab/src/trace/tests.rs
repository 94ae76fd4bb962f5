//! Tests of `trace`.

use std::io::Write as _;

use super::*;

const LINES: &str = concat!(
    "{\"_meta\": {\"id\": \"one\", \"model\": \"m-1\", \"tools\": [\"Read\"]}}\n",
    "{\"role\":\"user\",\"content\":\"go\",\"timestamp\":\"2026-01-02T03:04:05Z\"}\n",
    "\n",
    "no json\n",
    "{\"role\":\"alien\",\"content\":\"x\"}\n",
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"Read\",\"arguments\":\"{}\"}}]}\n",
);

fn packed(how: &str) -> Vec<u8> {
    match how {
        "gz" => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(LINES.as_bytes()).unwrap();
            out.finish().unwrap()
        }
        "zst" => zstd::encode_all(LINES.as_bytes(), 1).unwrap(),
        _ => LINES.as_bytes().to_vec(),
    }
}

#[test]
fn a_session_is_read_packed_or_not_and_bad_lines_are_named() {
    let directory = tempfile::tempdir().unwrap();
    for how in ["plain", "gz", "zst"] {
        let path = directory.path().join(format!("{how}.jsonl.{how}"));
        std::fs::write(&path, packed(how)).unwrap();
        let trace = read(&path).unwrap();
        assert_eq!((trace.name.as_str(), trace.model.as_str()), ("one", "m-1"));
        assert_eq!(trace.skipped, [4, 5]);
        assert_eq!(trace.messages.len(), 2);
        assert_eq!(trace.messages[0].raw, r#"{"role":"user","content":"go"}"#);
        assert_eq!(trace.messages[0].time, Some(1_767_323_045_000));
        assert_eq!(trace.tools_from, Tools::Derived);
        assert!(trace.tools.unwrap().contains("\"Read\""));
    }
}

#[test]
fn tools_that_were_recorded_are_kept() {
    let tools = r#"[{"function":{"name":"Read"},"type":"function"}]"#;
    let text = LINES.replace("[\"Read\"]", tools);
    let trace = parse("x", &text).unwrap();
    assert_eq!(trace.tools_from, Tools::Recorded);
    assert_eq!(trace.tools.as_deref(), Some(tools));
}

#[test]
fn directories_are_walked_in_order_and_empty_ones_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_owned();
    assert!(matches!(
        files(std::slice::from_ref(&root)),
        Err(TraceError::Nothing(_))
    ));
    std::fs::create_dir(root.join("a")).unwrap();
    for name in ["b.jsonl", "a/z.jsonl.zst", "index.json", "c.jsonl.gz"] {
        std::fs::write(root.join(name), "").unwrap();
    }
    let found = files(std::slice::from_ref(&root)).unwrap();
    let names = ["a/z.jsonl.zst", "b.jsonl", "c.jsonl.gz"].map(|name| root.join(name));
    assert_eq!((found.files, found.skipped.len()), (names.to_vec(), 0));
    let error = files(&[root.join("none")]).unwrap_err().to_string();
    assert!(error.starts_with("can't read "), "{error}");
}

#[test]
fn what_is_unpacked_has_a_bound() {
    for how in ["gz", "zst"] {
        let whole = LINES.len() as u64;
        let read = |most| unpacked(packed(how), most).unwrap();
        assert_eq!(read(whole).as_deref(), Some(LINES.as_bytes()), "{how}");
        assert_eq!(read(whole - 1), None, "{how}");
    }
    // A plain file takes no more room than it has on the disk.
    let plain = unpacked(packed("plain"), 1).unwrap();
    assert_eq!(plain.as_deref(), Some(LINES.as_bytes()));
}

#[test]
fn links_in_a_circle_and_pipes_are_passed_over_with_a_note() {
    use std::os::unix::fs::symlink;

    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().to_owned();
    std::fs::create_dir(root.join("a")).unwrap();
    std::fs::write(root.join("a/one.jsonl"), "").unwrap();
    symlink(&root, root.join("a/up")).unwrap();
    symlink("itself", root.join("itself")).unwrap();
    symlink("nothing", root.join("dangling.jsonl")).unwrap();
    let pipe = root.join("pipe.jsonl");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    let found = files(std::slice::from_ref(&root)).unwrap();
    assert_eq!(found.files, [root.join("a/one.jsonl")]);
    let names = [
        "up is a link",
        "dangling.jsonl was",
        "itself was",
        "pipe.jsonl is no file",
    ];
    assert_eq!(found.skipped.len(), names.len(), "{:?}", found.skipped);
    for (line, name) in found.skipped.iter().zip(names) {
        assert!(line.contains(name), "{name}: {line}");
    }
    let refused = files(&[pipe]).unwrap_err().to_string();
    assert!(
        refused.contains("write what it gives into a file"),
        "{refused}"
    );
}

#[test]
fn what_holds_no_session_is_refused_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.jsonl");
    for (bytes, words) in [
        (&b"\xff\xfe"[..], "no UTF-8"),
        (
            b"{\"role\":\"user\",\"content\":\"a\"}\n",
            "no assistant message",
        ),
        (&[0x28, 0xb5, 0x2f, 0xfd, 0], "can't read"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
