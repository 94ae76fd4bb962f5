//! Finds lone surrogates: halves of a character that a JSON string can spell but no text can hold.
//! Never changes the length of anything.

/// The replacement for each: the character for what can't be shown.
const SHOWN: &[u8; 6] = br"\ufffd";

/// Returns the JSON with every lone surrogate replaced by U+FFFD, so that all of it can be read as
/// text. `None` if there is none. All other bytes keep their places.
#[must_use]
pub fn mended(json: &[u8]) -> Option<Vec<u8>> {
    let mut mended: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', json.get(at..).unwrap_or_default()) {
        at += found;
        match (unit(json, at), unit(json, at + 6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => at += 12,
            (Some(0xD800..=0xDFFF), _) => {
                let copy = mended.get_or_insert_with(|| json.to_vec());
                if let Some(half) = copy.get_mut(at..at + 6) {
                    half.copy_from_slice(SHOWN);
                }
                at += 6;
            }
            (Some(_), _) => at += 6,
            // Any other escape, that of a backslash included.
            (None, _) => at += 2,
        }
    }
    mended
}

/// The UTF-16 unit that is spelled here.
fn unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let digits = std::str::from_utf8(digits).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_alone_are_mended() {
        let table: [(&str, Option<&str>); 10] = [
            (r#""a""#, None),
            (r#""\ud83d\ude00""#, None),
            (r#""\\ud800""#, None),
            (r#""\ud800""#, Some(r#""\ufffd""#)),
            (r#""\uDFFF\n""#, Some(r#""\ufffd\n""#)),
            (r#""\\\ud800x""#, Some(r#""\\\ufffdx""#)),
            (r#""\ud800\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#)),
            (r#""\ude00\ud83d""#, Some(r#""\ufffd\ufffd""#)),
            (r#""\ud800\u0041""#, Some(r#""\ufffd\u0041""#)),
            (r#"{"\udc00":"\"\ud800"}"#, Some(r#"{"\ufffd":"\"\ufffd"}"#)),
        ];
        for (json, wanted) in table {
            let found = mended(json.as_bytes());
            assert_eq!(found.as_deref(), wanted.map(str::as_bytes), "{json}");
        }
    }
}
