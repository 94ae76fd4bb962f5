//! The console's description, `docs/console/openapi.json`, and whether a value has the form of one of its
//! schemas. Knows the keywords that the description uses, and refuses any other, so that none is skipped.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

/// The description.
pub struct Description(Value);

/// The keywords that say nothing about a form.
const PLAIN: [&str; 3] = ["description", "minimum", "pattern"];

impl Description {
    pub fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/console/openapi.json");
        let text = std::fs::read_to_string(path).unwrap();
        Self(serde_json::from_str(&text).unwrap())
    }

    /// All paths with their methods.
    pub fn routes(&self) -> BTreeSet<(String, String)> {
        let paths = self.0["paths"].as_object().unwrap().iter();
        paths
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().unwrap().keys();
                methods.map(move |method| (path.clone(), method.clone()))
            })
            .collect()
    }

    /// Where an answer differs from what the description gives for it.
    pub fn faults(&self, method: &str, path: &str, status: &str, value: &Value) -> Vec<String> {
        let content = &self.0["paths"][path][method]["responses"][status]["content"];
        let schema = &content["application/json"]["schema"];
        assert!(
            schema.is_object(),
            "{method} {path} {status} is not described"
        );
        let mut faults = Vec::new();
        self.check(schema, value, "$", &mut faults);
        faults
    }

    /// Where a value differs from a named schema.
    pub fn faults_of(&self, name: &str, value: &Value) -> Vec<String> {
        let schema = &self.0["components"]["schemas"][name];
        assert!(schema.is_object(), "{name} is not described");
        let mut faults = Vec::new();
        self.check(schema, value, "$", &mut faults);
        faults
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
        for (keyword, rule) in schema.as_object().unwrap() {
            match keyword.as_str() {
                "$ref" => {
                    let name = rule.as_str().unwrap().rsplit('/').next().unwrap();
                    let named = &self.0["components"]["schemas"][name];
                    assert!(named.is_object(), "{name} is not described");
                    self.check(named, value, at, faults);
                }
                "anyOf" => {
                    let fits = |one: &Value| {
                        let mut own = Vec::new();
                        self.check(one, value, at, &mut own);
                        own.is_empty()
                    };
                    if !rule.as_array().unwrap().iter().any(fits) {
                        faults.push(format!("{at} is none of what it may be: {value}"));
                    }
                }
                "type" => {
                    let kinds: Vec<&str> = match rule {
                        Value::String(kind) => vec![kind],
                        Value::Array(kinds) => {
                            kinds.iter().map(|kind| kind.as_str().unwrap()).collect()
                        }
                        _ => panic!("{rule}"),
                    };
                    if !kinds.iter().any(|kind| is(kind, value)) {
                        faults.push(format!("{at} is not {kinds:?}: {value}"));
                    }
                }
                "enum" => {
                    if !rule.as_array().unwrap().contains(value) {
                        faults.push(format!("{at} is none of {rule}: {value}"));
                    }
                }
                "properties" | "required" | "additionalProperties" => {}
                "items" => {
                    for (place, one) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(rule, one, &format!("{at}[{place}]"), faults);
                    }
                }
                "prefixItems" => {
                    let rules = rule.as_array().unwrap().iter();
                    for (place, (rule, one)) in rules
                        .zip(value.as_array().into_iter().flatten())
                        .enumerate()
                    {
                        self.check(rule, one, &format!("{at}[{place}]"), faults);
                    }
                }
                "minItems" | "maxItems" => {
                    let length = value.as_array().map_or(0, Vec::len) as u64;
                    if Some(length) != rule.as_u64() {
                        faults.push(format!("{at} has not {rule} parts: {value}"));
                    }
                }
                plain if PLAIN.contains(&plain) => {}
                other => panic!("the test does not know `{other}`"),
            }
        }
        if let Value::Object(fields) = value {
            self.object(schema, fields, at, faults);
        }
    }

    fn object(
        &self,
        schema: &Value,
        fields: &Map<String, Value>,
        at: &str,
        faults: &mut Vec<String>,
    ) {
        for name in schema["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(name.as_str().unwrap()) {
                faults.push(format!("{at} has no {name}"));
            }
        }
        for (name, value) in fields {
            let at = format!("{at}.{name}");
            match (&schema["properties"][name], &schema["additionalProperties"]) {
                (rule @ Value::Object(_), _) => self.check(rule, value, &at, faults),
                (_, rule @ Value::Object(_)) => self.check(rule, value, &at, faults),
                (_, Value::Bool(false)) => faults.push(format!("{at} is not described")),
                _ => {}
            }
        }
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    }
}
