//! The dashboards against the metrics: each names only what exists, and together they name all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;

use super::{Documented, documented};

/// Every `plimsoll_…` word in a text, histogram suffixes cut off.
fn mentioned(text: &str, known: &[Documented]) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !word(c))
        .filter_map(|name| name.strip_prefix("plimsoll_"))
        .map(|name| {
            let histogram = |base: &&str| {
                known
                    .iter()
                    .any(|metric| metric.name == *base && metric.kind == "histogram")
            };
            let suffixes = ["_bucket", "_sum", "_count"];
            let base = suffixes
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix).filter(histogram));
            base.unwrap_or(name).to_owned()
        })
        .collect()
}

/// The dashboards, parsed, with their paths.
fn dashboards() -> Vec<(PathBuf, Value)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana/dashboards");
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let value = serde_json::from_str(&text);
            (
                path.clone(),
                value.unwrap_or_else(|error| panic!("{}: {error}", path.display())),
            )
        })
        .collect()
}

/// The query expressions of a dashboard, wherever they stand in it.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.extend(
                members
                    .get("expr")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            );
            members
                .values()
                .for_each(|member| expressions(member, found));
        }
        Value::Array(elements) => elements
            .iter()
            .for_each(|element| expressions(element, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The labels by which an expression groups.
fn grouped_by(expression: &str) -> Vec<&str> {
    let lists = expression
        .split("by (")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    lists
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .collect()
}

#[test]
fn the_dashboards_name_only_metrics_and_labels_that_exist() {
    let all = documented();
    let known: BTreeMap<_, _> = all
        .iter()
        .map(|metric| (&metric.name, &metric.labels))
        .collect();
    let mut shown = BTreeSet::new();
    for (path, dashboard) in dashboards() {
        let mut queries = Vec::new();
        expressions(&dashboard, &mut queries);
        for query in queries {
            let names = mentioned(&query, &all);
            let labels_of = |name: &String| match known.get(name) {
                Some(labels) => labels.iter().map(String::as_str),
                None => panic!("no metric {name}: {query}"),
            };
            let labels: BTreeSet<&str> = names.iter().flat_map(labels_of).collect();
            for label in grouped_by(&query) {
                assert!(
                    label == "le" || labels.contains(label),
                    "no label {label}: {query}"
                );
            }
            shown.extend(names);
        }
        assert!(!shown.is_empty(), "{} queries nothing", path.display());
    }
    let shown: BTreeSet<&String> = shown.iter().collect();
    assert_eq!(
        shown,
        known.into_keys().collect(),
        "each metric is worth a look, or is not worth having"
    );
}

/// Where a panel stands: its columns and its rows.
fn area(panel: &Value) -> [std::ops::Range<u64>; 2] {
    let at = |field: &str| panel["gridPos"][field].as_u64().unwrap();
    [at("x")..at("x") + at("w"), at("y")..at("y") + at("h")]
}

#[test]
fn no_panel_hides_another_and_all_follow_the_variables() {
    for (path, dashboard) in dashboards() {
        let panels = dashboard["panels"].as_array().unwrap();
        let ids: BTreeSet<u64> = panels
            .iter()
            .map(|panel| panel["id"].as_u64().unwrap())
            .collect();
        assert_eq!(ids.len(), panels.len(), "{}: an id twice", path.display());
        for (at, panel) in panels.iter().enumerate() {
            let [columns, rows] = area(panel);
            assert!(columns.end <= 24, "{panel}");
            for other in &panels[at + 1..] {
                let [others, below] = area(other);
                let apart = columns.end <= others.start
                    || others.end <= columns.start
                    || rows.end <= below.start
                    || below.end <= rows.start;
                assert!(apart, "{} hides {}", panel["title"], other["title"]);
            }
        }
        let mut queries = Vec::new();
        expressions(&dashboard, &mut queries);
        for query in queries {
            let (metrics, chosen) = (
                query.matches("plimsoll_").count() + query.matches("process_").count(),
                query
                    .matches(r#"job=~"$job",instance=~"$instance""#)
                    .count(),
            );
            assert_eq!(metrics, chosen, "{query}");
        }
        let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
        let names: Vec<_> = variables.map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["datasource", "job", "instance"]);
    }
}
