//! The three forms, as data: what a file is before and after, and what is refused.

use super::*;

/// Sets `path` to `v` and holds the result, and that it can be taken out again.
fn check(format: Format, before: &str, path: &[&str], after: &str) {
    let edited = format.set(before, path, "v").unwrap();
    assert_eq!(edited.text, after, "{before}");
    assert_eq!(format.get(&edited.text, path), Ok(Some("v".to_owned())));
}

#[test]
fn json_keeps_its_comments_its_order_and_its_layout() {
    let path = ["a", "b"];
    for (before, after) in [
        ("", "{\n  \"a\": {\n    \"b\": \"v\"\n  }\n}\n"),
        ("{}\n", "{\n  \"a\": {\n    \"b\": \"v\"\n  }\n}\n"),
        (
            "// mine\n{\n    \"z\": 1, // last\n    \"c\": [1,2],\n}",
            "// mine\n{\n    \"z\": 1, // last\n    \"c\": [1,2],\n    \"a\": {\n        \"b\": \"v\",\n    },\n}",
        ),
        (
            "{\r\n\t\"a\": {\r\n\t\t\"x\": null\r\n\t}\r\n}\r\n",
            "{\r\n\t\"a\": {\r\n\t\t\"x\": null,\r\n\t\t\"b\": \"v\"\r\n\t}\r\n}\r\n",
        ),
        ("{\"a\": {\"b\": \"old\"} }", "{\"a\": {\"b\": \"v\"} }"),
        (
            "\u{feff}{\"a\":{\"b\":\"\"}}",
            "\u{feff}{\"a\":{\"b\":\"v\"}}",
        ),
    ] {
        check(Format::Json, before, &path, after);
    }
}

#[test]
fn toml_keeps_its_comments_its_order_and_its_layout() {
    for (before, path, after) in [
        ("", &["u"][..], "u = \"v\"\n"),
        (
            "# mine\n\n[t] # t\nx=1",
            &["u"],
            "u = \"v\"\n# mine\n\n[t] # t\nx=1",
        ),
        (
            "m = 'x' # why\n\n# t's\n[t]\n",
            &["u"],
            "m = 'x' # why\nu = \"v\"\n\n# t's\n[t]\n",
        ),
        ("m = 'x'", &["u"], "m = 'x'\nu = \"v\""),
        (
            "m = [\r\n 1,\r\n]\r\n[t]\r\n",
            &["u"],
            "m = [\r\n 1,\r\n]\r\nu = \"v\"\r\n[t]\r\n",
        ),
        ("[[t]]\nx = 1\n", &["u"], "u = \"v\"\n[[t]]\nx = 1\n"),
        ("u = 'x' # why\n", &["u"], "u = \"v\" # why\n"),
        (
            "[t.'a b']\nu  =  \"\"\"x\"\"\"\n",
            &["t", "a b", "u"],
            "[t.'a b']\nu  =  \"v\"\n",
        ),
        (
            "t = { u = 'x', y = 1 }\n",
            &["t", "u"],
            "t = { u = \"v\", y = 1 }\n",
        ),
        ("\u{feff}[t]\n", &["u"], "\u{feff}u = \"v\"\n[t]\n"),
    ] {
        check(Format::Toml, before, path, after);
    }
}

#[test]
fn lines_keep_their_order_and_their_ends() {
    for (before, after) in [
        ("", "U='v'\n"),
        ("# mine\nA=1\n", "# mine\nA=1\nU='v'\n"),
        ("A=1", "A=1\nU='v'"),
        ("A=1\r\n", "A=1\r\nU='v'\r\n"),
        ("export U=\"x\" # why\r\nA=1", "export U='v' # why\r\nA=1"),
        ("U = x\nA=1", "U = 'v'\nA=1"),
        ("UU=1\nU=\n", "UU=1\nU='v'\n"),
    ] {
        check(Format::DotEnv, before, &["U"], after);
    }
    for (line, value) in [
        ("U=x", "x"),
        ("U = 'x y' # z", "x y"),
        ("U=x # z", "x"),
        ("U=\"x\"", "x"),
    ] {
        assert_eq!(
            Format::DotEnv.get(line, &["U"]),
            Ok(Some(value.to_owned())),
            "{line}"
        );
    }
}

#[test]
fn what_is_set_can_be_taken_out_of_a_file_that_others_have_changed() {
    for (format, path, made, before, after) in [
        (
            Format::Json,
            &["a", "b"][..],
            1,
            "{\n  // more\n  \"new\": 1,\n  \"a\": {\n    \"b\": \"v\"\n  }\n}\n",
            "{\n  // more\n  \"new\": 1\n}\n",
        ),
        (
            Format::Json,
            &["a", "b"],
            1,
            "{\n  \"a\": {\n    \"b\": \"v\",\n    \"new\": 1\n  }\n}\n",
            "{\n  \"a\": {\n    \"new\": 1\n  }\n}\n",
        ),
        (
            Format::Json,
            &["a", "b"],
            1,
            "{\n  \"a\": {\n    // mine\n    \"b\": \"v\"\n  }\n}\n",
            "{\n  \"a\": {\n    // mine\n  }\n}\n",
        ),
        (
            Format::Json,
            &["a", "b"],
            0,
            "{\"a\": {\"b\": \"v\"}}",
            "{\"a\": {}}",
        ),
        (
            Format::Toml,
            &["u"],
            0,
            "x = 1\nu = \"v\" # here\n[t]\n",
            "x = 1\n[t]\n",
        ),
        (Format::Toml, &["u"], 0, "u = \"v\"", ""),
        (
            Format::DotEnv,
            &["U"],
            0,
            "A=1\nexport U=v\nB=1",
            "A=1\nB=1",
        ),
    ] {
        assert_eq!(
            format.remove(before, path, made).as_deref(),
            Ok(after),
            "{before}"
        );
    }
}

#[test]
fn what_can_not_be_edited_is_refused() {
    for (format, text, path) in [
        (Format::Json, "{", &["a"][..]),
        (Format::Json, "{\"a\": 1,, }", &["a"]),
        (Format::Json, "{a: 1}", &["b"]),
        (Format::Json, "[]", &["a"]),
        (Format::Json, "{\"a\": 1}", &["a"]),
        (Format::Json, "{\"a\": []}", &["a", "b"]),
        (Format::Json, "{\"a\": {}, \"a\": {}}", &["a", "b"]),
        (Format::Toml, "a = ", &["b"]),
        (Format::Toml, "a = 1", &["a"]),
        (Format::Toml, "a = 1", &["a", "b"]),
        (Format::Toml, "[a]", &["a", "b"]),
        (Format::DotEnv, "A=1\nA=2", &["A"]),
    ] {
        assert!(format.set(text, path, "v").is_err(), "{text}");
    }
    let error = Format::Toml.get("\n\na = ", &["a"]).unwrap_err();
    assert!(error.to_string().contains("line 3"), "{error}");
}
