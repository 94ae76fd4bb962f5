//! Pages that stand alone: one file with some figures, the console's modules that draw them, and their
//! styles, which a browser opens from disk. Owns how the modules find each other there. Never draws, and
//! never writes a file.
//!
//! A module of a file on disk can't import its neighbour by a path. So each module is a `data:` address in
//! an import map, under a name of its own, and what it imports is renamed in the same way.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::FILES;

/// The style sheets, in the order in which a page reads them.
const STYLES: [&str; 4] = ["base.css", "frame.css", "views.css", "lab.css"];
/// The licences of the vendored modules, whose copies a page has.
const LICENCES: [&str; 2] = ["vendor/LICENSE.preact", "vendor/LICENSE.htm"];
/// What stands before a path in the name of a module.
const NAMED: &str = "plimsoll/";
/// How a module names its neighbours.
const NEIGHBOUR: &str = "from \"./";
/// How a vendored module names its neighbours: it has no spaces.
const CLOSE: &str = "from\"./";

/// What a page may load and do: what stands in it, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; \
    img-src data:; base-uri 'none'; form-action 'none'";

/// A page under a title, drawn by one of the console's modules from `data`. `otherwise` is for a browser
/// that runs no scripts.
#[must_use]
pub fn page(title: &str, module: &str, otherwise: &str, data: &Value) -> String {
    let map = json!({"imports": addresses(module)}).to_string();
    let styles: String = STYLES.iter().map(|path| text(path)).collect();
    let licences: Vec<&str> = LICENCES.iter().map(|path| text(path)).collect();
    let icon = STANDARD.encode(text("icon.svg"));
    // A name of a session could hold anything; without `<` nothing ends the element it stands in.
    let data = data.to_string().replace('<', "\\u003c");
    let (licences, start) = (licences.join("\n"), format!("{NAMED}{module}"));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>Plimsoll: {title}</title>\n\
         <link rel=\"icon\" href=\"data:image/svg+xml;base64,{icon}\">\n\
         <style>\n{styles}</style>\n\
         <script type=\"importmap\">{map}</script>\n</head>\n<body>\n\
         <div id=\"app\"><main><h1>{title}</h1><p>{otherwise}</p></main></div>\n\
         <script type=\"application/json\" id=\"data\">{data}</script>\n\
         <script type=\"module\">import \"{start}\";</script>\n\
         <script type=\"text/plain\" id=\"licences\">\n{licences}</script>\n\
         </body>\n</html>\n"
    )
}

/// The addresses of a module and of all that it imports, by their names.
fn addresses(module: &str) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let mut open = vec![module.to_owned()];
    while let Some(path) = open.pop() {
        let (text, imports) = renamed(&path);
        let address = format!("data:text/javascript;base64,{}", STANDARD.encode(text));
        found.insert(format!("{NAMED}{path}"), address);
        let new = imports.into_iter();
        open.extend(new.filter(|path| !found.contains_key(&format!("{NAMED}{path}"))));
    }
    found
}

/// A module whose imports are named as they are in the map, and their paths.
fn renamed(path: &str) -> (String, Vec<String>) {
    let directory = path.rsplit_once('/').map(|(directory, _)| directory);
    let beside = directory.map_or_else(String::new, |directory| format!("{directory}/"));
    let mut imports = Vec::new();
    let mut text = text(path).to_owned();
    for written in [NEIGHBOUR, CLOSE] {
        let mut parts = text.split(written);
        let mut whole = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            if let Some((name, _)) = part.split_once('"') {
                imports.push(format!("{beside}{name}"));
            }
            whole.push_str(&format!("from \"{NAMED}{beside}{part}"));
        }
        text = whole;
    }
    (text, imports)
}

/// A file of the console. Empty if there is none of this name.
fn text(path: &str) -> &'static str {
    let file = FILES.get_file(path);
    file.and_then(include_dir::File::contents_utf8)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: [&str; 2] = ["lab_replay.js", "lab_tune.js"];

    /// The modules of a page by name, as a browser reads them.
    fn modules(module: &str) -> BTreeMap<String, String> {
        let read = |(name, address): (String, String)| {
            let text = address.strip_prefix("data:text/javascript;base64,");
            let bytes = STANDARD.decode(text.unwrap()).unwrap();
            (name, String::from_utf8(bytes).unwrap())
        };
        addresses(module).into_iter().map(read).collect()
    }

    /// A text without its comments, which may tell types of other modules.
    fn without_comments(text: &str) -> String {
        let mut left = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("/*") {
            left.push_str(before);
            rest = behind.split_once("*/").unwrap().1;
        }
        left.push_str(rest);
        let lines = left.lines();
        let code = lines.filter(|line| !line.trim_start().starts_with("//"));
        code.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_module_of_a_page_finds_what_it_imports() {
        for page in PAGES {
            let modules = modules(page);
            assert!(modules.len() > 6, "{:?}", modules.keys());
            for (name, text) in &modules {
                assert!(!text.is_empty(), "{name}");
                let code = without_comments(text);
                assert!(
                    !code.contains("from \"./") && !code.contains("from\"./"),
                    "{name}"
                );
                for (_, behind) in code
                    .match_indices("from \"")
                    .map(|(at, _)| code.split_at(at))
                {
                    let import = behind.split('"').nth(1).unwrap();
                    assert!(modules.contains_key(import), "{name}: {import}");
                }
            }
        }
    }

    #[test]
    fn no_module_of_a_page_asks_for_anything() {
        for page in PAGES {
            for (name, text) in modules(page) {
                let code = without_comments(&text);
                for ask in [
                    "fetch(",
                    "import(",
                    "XMLHttpRequest",
                    "WebSocket",
                    "EventSource",
                    "sendBeacon",
                ] {
                    assert!(!code.contains(ask), "{name}: {ask}");
                }
            }
        }
    }

    #[test]
    fn a_page_is_whole_and_loads_nothing() {
        let named = json!({"sessions": ["</script><b>", "%DATA%"]});
        let page = page("a title", "lab_tune.js", "otherwise", &named);
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(page.contains("default-src 'none'") && page.contains("Content-Security-Policy"));
        // The licences name addresses, and they are text.
        let (before, licences) = page.split_once("id=\"licences\">").unwrap();
        for load in ["://", "src=", "@import", "url(", "fetch(", "import("] {
            assert!(!before.contains(load), "{load}");
        }
        let links: Vec<&str> = before.split("href=\"").skip(1).collect();
        assert!(
            links.iter().all(|link| link.starts_with("data:")),
            "{links:?}"
        );
        assert_eq!(licences.matches("</script>").count(), 1);
        for licence in LICENCES {
            assert!(licences.contains(text(licence)) && !text(licence).is_empty());
        }
        for style in STYLES {
            assert!(
                page.contains(text(style)) && !text(style).is_empty(),
                "{style}"
            );
            assert!(!text(style).contains("</"), "{style}");
        }
        let (_, rest) = page.split_once("id=\"data\">").unwrap();
        let found: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
        assert_eq!(found, named);
    }
}
