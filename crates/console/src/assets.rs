//! The files of the page, which the binary holds. Owns their types and the rules under which a browser
//! runs them. Never reads a file of the machine.

pub mod alone;

use include_dir::{Dir, include_dir};

/// The directory `console/` of the sources.
static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../console");

/// Where the page gets its token.
const TOKEN_PLACE: &str = "name=\"plimsoll-token\" content=\"\"";

/// What the page may load and do: nothing from elsewhere, nothing inline, and nobody frames it.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// Its content type.
    pub kind: &'static str,
    /// Its bytes.
    pub bytes: std::borrow::Cow<'static, [u8]>,
    /// Its tag for caches. The page itself has none: it holds a token.
    pub tag: Option<String>,
}

/// A file by its path; the page itself by the empty path. None if there is no such file.
#[must_use]
pub fn find(path: &str, token: &str) -> Option<Asset> {
    let path = if path.is_empty() { "index.html" } else { path };
    let file = FILES.get_file(path)?;
    let bytes = file.contents();
    let kind = kind(path)?;
    if path == "index.html" {
        let page = String::from_utf8_lossy(bytes);
        let own = format!("name=\"plimsoll-token\" content=\"{token}\"");
        let page = page.replacen(TOKEN_PLACE, &own, 1);
        return Some(Asset {
            kind,
            bytes: page.into_bytes().into(),
            tag: None,
        });
    }
    let hash = blake3::hash(bytes).to_hex();
    Some(Asset {
        kind,
        bytes: bytes.into(),
        tag: Some(format!("\"{}\"", hash.get(..32).unwrap_or_default())),
    })
}

/// The content type of a file by its name. What has none is not served.
fn kind(path: &str) -> Option<&'static str> {
    let (_, extension) = path.rsplit_once('.')?;
    Some(match extension {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "json" => "application/json",
        "woff2" => "font/woff2",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_token_and_no_other_file_has() {
        let page = find("", "0123").unwrap();
        let text = String::from_utf8_lossy(&page.bytes).into_owned();
        assert!(
            text.contains("name=\"plimsoll-token\" content=\"0123\""),
            "{text}"
        );
        assert_eq!(page.tag, None);
        assert_eq!(find("../Cargo.toml", "0123"), None);
        assert_eq!(find("vendor/LICENSE", "0123"), None);
    }
}
