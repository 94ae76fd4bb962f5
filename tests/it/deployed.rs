//! The files of `deploy/`, without the tools that read them: what they name is there, what they set
//! are settings, and nothing is published beyond this machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll::config::{Config, Flags};
use saphyr::{LoadableYamlNode as _, Yaml};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

/// The texts of a list or of a mapping's keys.
fn words(node: &Yaml<'_>) -> Vec<String> {
    let list = node.as_vec().map(|list| list.iter().collect::<Vec<_>>());
    let keys = node.as_mapping().map(|map| map.keys().collect::<Vec<_>>());
    let texts = list.or(keys).unwrap_or_default().into_iter();
    texts
        .filter_map(|text| text.as_str())
        .map(str::to_owned)
        .collect()
}

/// What compose puts in the place of `${NAME:-default}` and `${NAME:?message}`. A default of nothing
/// stands for a secret that is given, as the file's head says.
fn substituted(text: &str) -> String {
    let Some((before, rest)) = text.split_once("${") else {
        return text.to_owned();
    };
    let (variable, after) = rest.split_once('}').unwrap();
    let value = match variable.split_once(":-") {
        Some((_, default)) if !default.is_empty() => default.to_owned(),
        Some(_) | None => "0".repeat(64),
    };
    format!("{before}{value}{after}")
}

#[test]
fn compose_files_hold_together() {
    for file in ["compose.yaml", "replicas.yaml"] {
        let text = fs::read_to_string(deploy().join(file)).unwrap();
        let documents = Yaml::load_from_str(&text).unwrap();
        let whole = &documents[0];
        let console = "127.0.0.1:9187:9187";
        assert!(text.contains(console), "{file} publishes no console");
        let services = whole["services"].as_mapping().unwrap();
        let names: BTreeSet<String> = words(&whole["services"]).into_iter().collect();
        let volumes: BTreeSet<String> = words(&whole["volumes"]).into_iter().collect();
        for (name, service) in services {
            // What a service shares with others stands under its merge key.
            let shared = service.as_mapping_get("<<");
            let of = |key: &str| {
                let shared = || shared.and_then(|shared| shared.as_mapping_get(key));
                service.as_mapping_get(key).or_else(shared)
            };
            let name = format!("{file}: {}", name.as_str().unwrap());
            for needed in of("depends_on").map(words).unwrap_or_default() {
                assert!(names.contains(&needed), "{name} needs {needed}");
            }
            for volume in of("volumes").map(words).unwrap_or_default() {
                let (from, _) = volume.split_once(':').unwrap();
                let there = volumes.contains(from)
                    || (from.starts_with("./") && deploy().join(from).exists());
                assert!(there, "{name} mounts {from}");
            }
            for port in of("ports").map(words).unwrap_or_default() {
                assert!(port.starts_with("127.0.0.1:"), "{name} publishes {port}");
            }
            assert!(of("mem_limit").is_some(), "{name} has no limit");
            let own = of("environment").and_then(Yaml::as_mapping);
            let set = own.into_iter().flatten().filter_map(|(name, value)| {
                let value = value.as_str().map(str::to_owned);
                let value = value.or_else(|| Some(value_of(name, own?)?.to_string()))?;
                Some((name.as_str()?.to_owned(), substituted(&value)))
            });
            let set: Vec<(String, String)> = set
                .filter(|(name, _)| name.starts_with("PLIMSOLL__"))
                .collect();
            let flags = Flags {
                config: Some("config/plimsoll.toml".into()),
                ..Flags::default()
            };
            let is_proxy = !set.is_empty();
            let config =
                Config::load(&flags, set).unwrap_or_else(|error| panic!("{name}: {error}"));
            // The image listens on all addresses, and who is given a token there is let in.
            assert_eq!(config.server.admin_token.is_some(), is_proxy, "{name}");
        }
    }
}

/// A number in a mapping.
fn value_of(key: &Yaml<'_>, map: &saphyr::Mapping<'_>) -> Option<i64> {
    map.get(key)?.as_integer()
}
