//! A text in JSON with comments. Owns the walk along a path of names; the layout is the library's.
//! Never changes another value.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};

use super::{Edited, FormatError};

/// Some editors put it at the beginning of a file.
const MARK: char = '\u{feff}';
/// What agents take: comments and trailing commas, and nothing else beside JSON.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The document without the mark at its beginning, and its root.
fn read(text: &str) -> Result<(CstRootNode, Option<CstObject>), FormatError> {
    let text = text.strip_prefix(MARK).unwrap_or(text);
    let root = CstRootNode::parse(text, &OPTIONS)
        .map_err(|error| FormatError::Malformed(error.to_string()))?;
    let Some(value) = root.value() else {
        return Ok((root, None));
    };
    let object = value.as_object();
    let object = object.ok_or_else(|| FormatError::Unexpected("the file".into(), "no object"))?;
    Ok((root, Some(object)))
}

fn written(before: &str, root: &CstRootNode) -> String {
    let mark = before.starts_with(MARK).then_some(MARK);
    mark.into_iter().chain(root.to_string().chars()).collect()
}

/// The property of a name.
fn property(object: &CstObject, name: &str) -> Result<Option<CstObjectProp>, FormatError> {
    let is = |property: &CstObjectProp| property.decoded_name().as_deref() == Some(name);
    let mut found = object.properties().into_iter().filter(is);
    let first = found.next();
    if found.next().is_some() {
        return Err(FormatError::Twice(name.to_owned()));
    }
    Ok(first)
}

fn as_object(property: &CstObjectProp, name: &str) -> Result<CstObject, FormatError> {
    let object = property.object_value();
    object.ok_or_else(|| FormatError::Unexpected(name.to_owned(), "no object"))
}

/// The objects along a path as far as they are there, and the names that are left.
fn walk<'a>(
    root: CstObject,
    path: &'a [&'a str],
) -> Result<(Vec<CstObject>, &'a [&'a str]), FormatError> {
    let (mut objects, mut rest) = (vec![root], path);
    while let [name, below @ ..] = rest
        && !below.is_empty()
    {
        let Some(object) = objects.last() else { break };
        let Some(found) = property(object, name)? else {
            break;
        };
        objects.push(as_object(&found, name)?);
        rest = below;
    }
    Ok((objects, rest))
}

/// The property of a whole path.
fn find(root: CstObject, path: &[&str]) -> Result<Option<CstObjectProp>, FormatError> {
    match walk(root, path)? {
        (objects, [name]) => match objects.last() {
            Some(object) => property(object, name),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

pub fn get(text: &str, path: &[&str]) -> Result<Option<String>, FormatError> {
    let (_, Some(object)) = read(text)? else {
        return Ok(None);
    };
    let Some(found) = find(object, path)? else {
        return Ok(None);
    };
    let value = found.value().and_then(|value| value.as_string_lit());
    let value = value.and_then(|value| value.decoded_value().ok());
    match value {
        Some(value) => Ok(Some(value)),
        None => Err(FormatError::Unexpected(path.join("."), "no text")),
    }
}

pub fn set(text: &str, path: &[&str], value: &str) -> Result<Edited, FormatError> {
    // What is no text is not ours to replace.
    get(text, path)?;
    let (root, object) = read(text)?;
    let value = CstInputValue::String(value.to_owned());
    let Some(object) = object else {
        root.set_value(nested(path, value));
        let text = written(text, &root);
        let text = if text.ends_with('\n') {
            text
        } else {
            text + "\n"
        };
        return Ok(Edited {
            text,
            made: path.len().saturating_sub(1),
        });
    };
    if let Some(found) = find(object.clone(), path)? {
        found.set_value(value);
        return Ok(Edited {
            text: written(text, &root),
            made: 0,
        });
    }
    let (objects, rest) = walk(object, path)?;
    if let (Some(object), Some((name, below))) = (objects.last(), rest.split_first()) {
        object.append(name, nested(below, value));
    }
    Ok(Edited {
        text: written(text, &root),
        made: rest.len().saturating_sub(1),
    })
}

/// A value below the objects of a path.
fn nested(path: &[&str], value: CstInputValue) -> CstInputValue {
    let wrap = |inner, name: &&str| CstInputValue::Object(vec![((*name).to_owned(), inner)]);
    path.iter().rev().fold(value, wrap)
}

pub fn remove(text: &str, path: &[&str], made: usize) -> Result<String, FormatError> {
    let (root, object) = read(text)?;
    let absent = || FormatError::Absent(path.join("."));
    let object = object.ok_or_else(absent)?;
    find(object.clone(), path)?.ok_or_else(absent)?.remove();
    let mut above = path;
    for _ in 0..made {
        above = above.split_last().map_or(above, |(_, above)| above);
        let Some(found) = find(object.clone(), above)? else {
            break;
        };
        // What somebody put or noted there stays.
        let is_empty = |object: &CstObject| {
            let children = object.children();
            object.properties().is_empty() && !children.iter().any(|child| child.is_comment())
        };
        if !found.object_value().is_some_and(|object| is_empty(&object)) {
            break;
        }
        found.remove();
    }
    Ok(written(text, &root))
}
