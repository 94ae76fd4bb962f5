//! Tests of `origin`.

use super::*;

fn list(entries: &[&str]) -> Vec<String> {
    entries.iter().map(ToString::to_string).collect()
}

fn guard(listen: &str, hosts: &[&str], origins: &[&str]) -> OriginGuard {
    let hosts = Hosts::read(&list(hosts)).unwrap();
    let origins = Origins::read(&list(origins)).unwrap();
    OriginGuard::new(listen.parse().unwrap(), &hosts, &origins)
}

fn request(header: &str, value: &str) -> Request<()> {
    Request::get("/").header(header, value).body(()).unwrap()
}

#[test]
fn hosts_are_held_to_where_the_listener_is() {
    // (listener, configured, asked for, allowed)
    let table: [(&str, &[&str], &str, bool); 16] = [
        ("127.0.0.1", &[], "localhost:1", true),
        ("127.0.0.1", &[], "proxy.example", false),
        ("::1", &[], "proxy.example", false),
        ("::ffff:127.0.0.1", &[], "proxy.example", false),
        ("::1", &[], "[::ffff:127.0.0.1]:1", true),
        ("127.0.0.1", &["Proxy.Example"], "proxy.example.:8787", true),
        ("127.0.0.1", &["proxy.example"], "a.proxy.example", false),
        ("127.0.0.1", &["proxy.example"], "localhost", true),
        ("127.0.0.1", &["10.0.0.7"], "10.0.0.7:1", true),
        ("127.0.0.1", &["fe80::1"], "[fe80::1]:1", true),
        ("127.0.0.1", &["*"], "evil.example", true),
        ("0.0.0.0", &[], "evil.example", true),
        ("10.0.0.7", &[], "evil.example", true),
        ("0.0.0.0", &["plimsoll"], "plimsoll:9187", true),
        ("0.0.0.0", &["plimsoll"], "evil.example", false),
        ("0.0.0.0", &["plimsoll"], "localhost:8787", true),
    ];
    for (listen, hosts, asked, allowed) in table {
        let admitted = guard(listen, hosts, &[]).admit(&request("host", asked));
        assert_eq!(admitted.is_ok(), allowed, "{listen} {hosts:?} {asked}");
    }
}

#[test]
fn origins_are_those_of_this_machine_and_those_configured() {
    let table: [(&[&str], &str, bool); 17] = [
        (&[], "http://localhost", true),
        (&[], "HTTPS://LocalHost:1", true),
        (&[], "https://app.example", false),
        (&[], "tauri://localhost", false),
        (&["https://App.example:443/"], "https://app.example", true),
        (&["https://app.example"], "http://app.example", false),
        (&["https://app.example"], "https://app.example:8443", false),
        (&["https://app.example"], "https://app.example.evil", false),
        (&["http://app.example:81"], "http://app.example:81", true),
        (&["http://app.example:80"], "http://app.example", true),
        (&["app://*"], "app://obsidian.md", true),
        (&["app://*"], "apps://obsidian.md", false),
        (&["app://obsidian.md"], "app://other", false),
        (&["null"], "null", true),
        (&["app://*"], "null", false),
        (&["*"], "null", true),
        (&["*"], "https://evil.example", true),
    ];
    for (origins, asked, allowed) in table {
        // Where hosts are not checked, origins are all the same.
        for listen in ["127.0.0.1", "0.0.0.0"] {
            let guard = guard(listen, &["*"], origins);
            let admitted = guard.admit(&request("origin", asked));
            assert_eq!(admitted.is_ok(), allowed, "{listen} {origins:?} {asked}");
        }
    }
}

#[test]
fn entries_that_mean_nothing_are_refused() {
    for entry in [
        "",
        "http://a",
        "a:1",
        "a/b",
        "*.example",
        "a b",
        "[::1",
        "[::1]:1",
    ] {
        assert!(Hosts::read(&list(&[entry])).is_err(), "{entry}");
    }
    for entry in [
        "",
        "a.example",
        "https://",
        "https://*",
        "http://*",
        "https://a/b",
        "://a",
        "https://*.a",
        "https://a,https://b",
        "https://u@a",
    ] {
        assert!(Origins::read(&list(&[entry])).is_err(), "{entry}");
    }
}
