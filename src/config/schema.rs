//! A JSON schema of the configuration, with which an editor completes and checks a file while it is written. Made of
//! what the readers ask for, and of the comments and the defaults of the shipped file. Says which keys there are and
//! how they are written. Never decides what is valid: `plimsoll check` does.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::form::Form;
use super::given::join;
use super::layers::Layers;
use super::names::SHIPPED;
use super::sections;

/// Sections of which an operator chooses the names, each with one that is read to see what they hold.
const NAMED: [(&str, &str); 2] = [("rungs", "cwl"), ("profiles", "paper")];

/// A file in which each section stands that is read only where it is given.
const EACH: &str = "[rungs.cwl]\n[profiles.paper.when]\nchild = true\n[profiles.paper.rungs.cwl]\n";

/// The JSON schema (draft 7) of `config/plimsoll.toml`.
#[must_use]
pub fn schema() -> Value {
    let mut layers = Layers::default();
    layers.file(Path::new("each"), EACH);
    let (given, problems) = layers.finish();
    let check = sections::read(given, problems).1;
    let shipped = Shipped::read();
    let mut schema = object(&check.known, &shipped, "");
    if let Some(root) = schema.as_object_mut() {
        let draft = json!("http://json-schema.org/draft-07/schema#");
        root.insert("$schema".to_owned(), draft);
        root.insert("title".to_owned(), json!("Plimsoll"));
    }
    schema
}

/// The schema of a section. No key is allowed that no reader asks for.
fn object(known: &BTreeMap<(String, String), Form>, shipped: &Shipped, section: &str) -> Value {
    let own = section.rsplit('.').next();
    if let Some((_, one)) = NAMED.iter().find(|(name, _)| Some(*name) == own) {
        let one = object(known, shipped, &join(section, one));
        return json!({"type": "object", "additionalProperties": one});
    }
    let mut properties = Map::new();
    for ((_, key), form) in known.iter().filter(|((of, _), _)| of == section) {
        let setting = match form {
            Form::Section => object(known, shipped, &join(section, key)),
            form => shipped.described(section, key, form.schema()),
        };
        properties.insert(key.clone(), setting);
    }
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// What the shipped file says of each setting.
struct Shipped {
    defaults: toml::Table,
    /// The comments above each setting, by section and key.
    comments: BTreeMap<(String, String), String>,
}

impl Shipped {
    fn read() -> Self {
        let (mut section, mut comment, mut above) = ("", String::new(), false);
        let mut comments = BTreeMap::new();
        for line in SHIPPED.lines() {
            let text = line.strip_prefix('#').map(str::trim);
            // Settings that stand together share the comment above the first of them.
            if !above && (text.is_some() || line.is_empty()) {
                comment.clear();
            }
            above = text.is_some();
            if let Some(text) = text {
                comment += if comment.is_empty() { "" } else { " " };
                comment += text;
            } else if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']');
            } else if let Some((key, _)) = line.split_once(" = ") {
                let place = (section.to_owned(), key.to_owned());
                comments.insert(place, comment.clone());
            }
        }
        Self {
            defaults: SHIPPED.parse().unwrap_or_default(),
            comments,
        }
    }

    /// A setting's schema, with what the file says of the setting. A profile's settings are those of the sections over
    /// which it is laid; what it leaves out is not the default but what stands there.
    fn described(&self, section: &str, key: &str, mut schema: Value) -> Value {
        let base = section.strip_prefix("profiles.paper");
        let base = base.map(|rest| rest.strip_prefix('.').unwrap_or("budget"));
        let at = base.unwrap_or(section);
        let Some(said) = schema.as_object_mut() else {
            return schema;
        };
        // A profile sets the guidance beside its budget.
        let said_of = |at: &str| self.comments.get(&(at.to_owned(), key.to_owned()));
        let comment = said_of(at).or_else(|| said_of("delimiter").filter(|_| at == "budget"));
        if let Some(comment) = comment.filter(|comment| !comment.is_empty()) {
            said.insert("description".to_owned(), json!(comment));
        }
        let default = self.defaults.get(at).and_then(|section| section.get(key));
        if let Some(default) = default.filter(|_| base.is_none()) {
            said.insert("default".to_owned(), json!(default));
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The properties of a section.
    fn properties<'a>(schema: &'a Value, section: &str) -> &'a Map<String, Value> {
        let section = schema.pointer(section).unwrap();
        section["properties"].as_object().unwrap()
    }

    /// Whether a value of TOML is of one of a schema's types.
    fn fits(schema: &Value, value: &toml::Value) -> bool {
        if let Some(words) = schema["enum"].as_array() {
            return words.iter().any(|word| word.as_str() == value.as_str());
        }
        let kind = match value {
            toml::Value::String(_) => "string",
            toml::Value::Integer(_) => "integer",
            toml::Value::Float(_) => "number",
            toml::Value::Boolean(_) => "boolean",
            toml::Value::Array(_) => "array",
            _ => "object",
        };
        let types = &schema["type"];
        let is = |name: &str| {
            types == name
                || types
                    .as_array()
                    .is_some_and(|all| all.contains(&json!(name)))
        };
        is(kind) || kind == "integer" && is("number")
    }

    #[test]
    fn every_setting_of_the_shipped_file_is_in_the_schema_as_it_is_written_there() {
        let schema = schema();
        let shipped: toml::Table = SHIPPED.parse().unwrap();
        let mut seen = 0;
        for (section, keys) in &shipped {
            for (key, value) in keys.as_table().unwrap() {
                let setting = &properties(&schema, &format!("/properties/{section}"))[key];
                assert!(fits(setting, value), "{section}.{key}: {setting}");
                assert_eq!(setting["default"], json!(value), "{section}.{key}");
                seen += 1;
            }
        }
        assert!(seen > 80, "all settings were seen");
        let tokens = &properties(&schema, "/properties/budget")["tokens"];
        let said = tokens["description"].as_str().unwrap();
        assert!(said.starts_with("The most tokens that a request"), "{said}");
    }

    #[test]
    fn the_shipped_profiles_are_in_the_schema() {
        let schema = schema();
        let profiles: toml::Table = include_str!("../../config/profiles.toml").parse().unwrap();
        let profile = "/properties/profiles/additionalProperties";
        for (name, keys) in profiles["profiles"].as_table().unwrap() {
            for (key, value) in keys.as_table().unwrap() {
                let setting = properties(&schema, profile).get(key);
                let setting = setting.unwrap_or_else(|| panic!("{name}.{key}"));
                assert!(fits(setting, value), "{name}.{key}: {setting}");
                let Some(below) = value.as_table().filter(|_| key != "rungs") else {
                    continue;
                };
                let known = properties(&schema, &format!("{profile}/properties/{key}"));
                assert!(
                    below.keys().all(|key| known.contains_key(key)),
                    "{name}.{key}"
                );
            }
        }
        // What a profile leaves out is what the sections below it say, so it has no default.
        let budget = &properties(&schema, profile)["tokens"];
        assert!(budget.get("default").is_none() && budget.get("description").is_some());
    }

    #[test]
    fn what_an_operator_names_has_the_settings_of_its_kind() {
        let schema = schema();
        for rungs in ["", "/properties/profiles/additionalProperties"] {
            let rung = properties(
                &schema,
                &format!("{rungs}/properties/rungs/additionalProperties"),
            );
            assert_eq!(
                rung.keys().collect::<Vec<_>>(),
                ["files", "floor", "roles", "tools"]
            );
        }
        let root = properties(&schema, "");
        assert_eq!(schema["additionalProperties"], json!(false));
        assert!(root.contains_key("profiles") && !root.contains_key("sever"));
        // A file may use the other name of a setting, so it is no mistake.
        assert!(properties(&schema, "/properties/budget").contains_key("policy"));
    }
}
