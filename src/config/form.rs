//! How a setting may be written in a file: the kinds of TOML that its reader takes. Owns these kinds and their JSON
//! schema. Never knows a setting, nor which values of a kind are valid.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::secret::Secret;

/// How a setting may be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A section with settings of its own.
    Section,
    /// A text.
    Text,
    /// One of a closed set of words.
    Word(Vec<String>),
    /// `true` or `false`.
    Flag,
    /// A whole number that is not negative.
    Count,
    /// A number that may have a fraction.
    Number,
    /// Any of these, as for a size: 80000, "80k".
    Any,
    /// As the setting of which this is another name. It is accepted and not shown.
    OtherName,
    /// A list.
    List(Box<Form>),
}

impl Form {
    /// The JSON schema of a value of this form.
    pub(super) fn schema(&self) -> Value {
        match self {
            Self::Section => json!({"type": "object"}),
            Self::Text => json!({"type": "string"}),
            Self::Word(words) => json!({"enum": words}),
            Self::Flag => json!({"type": "boolean"}),
            Self::Count => json!({"type": "integer", "minimum": 0}),
            Self::Number => json!({"type": "number"}),
            Self::Any => json!({"type": ["string", "number", "boolean", "array"]}),
            Self::OtherName => json!({"deprecated": true}),
            Self::List(items) => json!({"type": "array", "items": items.schema()}),
        }
    }
}

/// What a reader takes.
pub(super) trait Written: DeserializeOwned {
    /// How it is written.
    fn form() -> Form;
}

macro_rules! written {
    ($($taken:ty => $form:ident),+ $(,)?) => {
        $(impl Written for $taken {
            fn form() -> Form {
                Form::$form
            }
        })+
    };
}

written! {
    String => Text,
    Secret => Text,
    bool => Flag,
    f64 => Number,
    u8 => Count,
    u16 => Count,
    u32 => Count,
    usize => Count,
    toml::Value => Any,
}

impl<T: Written> Written for Vec<T> {
    fn form() -> Form {
        Form::List(Box::new(T::form()))
    }
}
