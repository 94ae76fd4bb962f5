//! A report as one page that carries everything it needs: figures, style and the script that draws
//! them. Pure: figures to text. Owns what goes into the page and how series are thinned; the page
//! itself stands in `html/`, and loads nothing.

use serde_json::{Value, json};

use super::json;
use super::outcome::{Played, Point, PolicyRun, Report, SessionOutcome};
use super::{Annotate, Options};
use crate::policy::Policy;

const PAGE: &str = include_str!("html/page.html");
const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// The figures of the page, by their names in the JSON.
const FIGURES: [&str; 16] = [
    "requests",
    "tokens_sent",
    "peak",
    "over_ceiling",
    "prune_rate",
    "passes",
    "prefix_breaks",
    "cached_share",
    "cost",
    "retention_visible",
    "retention_recoverable",
    "retention_lines",
    "retention_passages",
    "no_impact_rate",
    "refetches",
    "us_per_request",
];

/// Points of a series at most: a chart has hardly more pixels.
const POINTS: usize = 400;
/// Points of all series together at most, at some six bytes each.
const ALL_POINTS: usize = 240_000;
/// Points of a series at least.
const FEW_POINTS: usize = 60;

/// The page. `report` must hold at least one session.
#[must_use]
pub fn page(report: &Report, options: &Options) -> String {
    // A name of a session could hold anything; without `<` nothing ends the element it stands in.
    let data = data(report, options).to_string().replace('<', "\\u003c");
    // The data comes last, so that nothing in it is taken for a place.
    PAGE.replace("%STYLE%", STYLE)
        .replace("%SCRIPT%", SCRIPT)
        .replace("%DATA%", &data)
}

fn data(report: &Report, options: &Options) -> Value {
    let totals = report.policies();
    let names: Vec<&str> = totals.iter().map(|(name, _)| *name).collect();
    let total = totals.iter();
    let total: Vec<Value> = total
        .map(|(name, outcome)| row(&json::policy(name, outcome)))
        .collect();
    let series = report.sessions.len() * names.len() * options.ceilings.len();
    let most = (ALL_POINTS / series.max(1)).clamp(FEW_POINTS, POINTS);
    let sessions: Vec<Value> = report
        .sessions
        .iter()
        .map(|one| session(one, options, most))
        .collect();
    json!({
        "figures": FIGURES,
        "policies": names,
        "settings": {
            "ceilings": options.ceilings,
            "floor": json::floor(options.floor),
            "annotate": match options.annotate {
                Annotate::None => "marked by nobody",
                Annotate::Inferred => "inferred from the tools, at no cost",
                Annotate::Scripted => "marked by a scripted model, and charged",
                Annotate::Obedient => "marked by a model that does as it is asked, and charged",
            },
            "prices": options.pricing.name,
        },
        "left_out": report.short,
        "total": total,
        "sessions": sessions,
    })
}

/// The figures of one policy in the order of [`FIGURES`].
fn row(policy: &Value) -> Value {
    let figure = |name: &&str| match policy.get(*name) {
        Some(Value::Number(number)) if number.is_f64() => {
            json!(rounded(number.as_f64().unwrap_or(0.0)))
        }
        Some(value) => value.clone(),
        None => Value::Null,
    };
    FIGURES.iter().map(figure).collect()
}

/// A number with as many digits as a page shows.
fn rounded(number: f64) -> f64 {
    if number.abs() >= 100.0 {
        number.round()
    } else {
        (number * 1e5).round() / 1e5
    }
}

fn session(session: &SessionOutcome, options: &Options, most: usize) -> Value {
    let rows: Vec<Value> = session
        .policies
        .iter()
        .map(|played| row(&json::policy(&played.policy, &played.outcome())))
        .collect();
    let runs = |at: usize| {
        session
            .policies
            .iter()
            .map(move |one| (one, one.runs.get(at)))
    };
    let by_ceiling = |show: fn(&Played, &PolicyRun, usize) -> Value| -> Vec<Value> {
        let one = |at| {
            runs(at)
                .map(|(played, run)| run.map_or(Value::Null, |run| show(played, run, most)))
                .collect()
        };
        (0..options.ceilings.len()).map(one).collect()
    };
    let untouched = runs(0).find_map(|(_, run)| run);
    let untouched = untouched.map_or(&[][..], |run| run.series.as_slice());
    json!({
        "name": session.name,
        "tokens": session.tokens,
        "requests": untouched.len(),
        "rows": rows,
        "client": thinned(untouched, most, |point| point.client),
        "series": by_ceiling(series),
        "passes": by_ceiling(|_, run, _| passes(&run.series)),
    })
}

/// The sizes that a policy sent; nothing for the one that sends what it is given.
fn series(played: &Played, run: &PolicyRun, most: usize) -> Value {
    if played.policy == Policy::None.name() {
        return Value::Null;
    }
    thinned(&run.series, most, |point| point.sent)
}

/// The requests before which a pass was made, from 1, each with what was sent.
fn passes(series: &[Point]) -> Value {
    let numbered = series.iter().enumerate().filter(|(_, point)| point.passed);
    numbered
        .map(|(at, point)| json!([at + 1, point.sent]))
        .collect()
}

/// A series as `[numbers, sizes]`, where no numbers mean 1, 2, 3 …. A longer one is cut into
/// stretches of which the largest and the smallest request stay, so that no peak and no pass is
/// lost from the picture.
fn thinned(series: &[Point], most: usize, size: impl Fn(&Point) -> u64) -> Value {
    let sizes: Vec<u64> = series.iter().map(size).collect();
    if sizes.len() <= most {
        return json!([[], sizes]);
    }
    let stretch = (2 * sizes.len()).div_ceil(most.max(2)).max(1);
    let mut kept: Vec<(usize, u64)> = Vec::new();
    for (number, part) in sizes.chunks(stretch).enumerate() {
        let numbered = || part.iter().enumerate();
        let low = numbered().min_by_key(|(_, size)| **size);
        let high = numbered().max_by_key(|(_, size)| **size);
        let mut both: Vec<_> = [low, high].into_iter().flatten().collect();
        both.sort_unstable();
        both.dedup();
        let first = number * stretch + 1;
        kept.extend(both.into_iter().map(|(at, size)| (first + at, *size)));
    }
    let (numbers, sizes): (Vec<usize>, Vec<u64>) = kept.into_iter().unzip();
    json!([numbers, sizes])
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::evicting;
    use super::super::outcome::Outcome;
    use super::*;

    fn point(client: u64, sent: u64, passed: bool) -> Point {
        Point {
            client,
            sent,
            passed,
        }
    }

    /// A report of two sessions, one of them named by somebody who means no good.
    fn report(policies: &[&str], requests: u64) -> (Report, Options) {
        let options = Options {
            policies: vec![Policy::None.into(), Policy::Cwl.into()],
            ceilings: vec![40_000, 80_000],
            ..Options::default()
        };
        let run = |ceiling: &u32| PolicyRun {
            ceiling: *ceiling,
            outcome: Outcome {
                requests,
                cost: 12.345_678_9,
                ..Outcome::default()
            },
            series: (0..requests)
                .map(|at| point(at * 10, at * 7, at % 9 == 8))
                .collect(),
        };
        let session = |name: &str| SessionOutcome {
            name: name.to_owned(),
            policies: policies
                .iter()
                .map(|policy| Played {
                    policy: (*policy).to_owned(),
                    runs: options.ceilings.iter().map(run).collect(),
                })
                .collect(),
            ..SessionOutcome::default()
        };
        let sessions = vec![session("first"), session("</script><b>%STYLE%")];
        (Report { sessions, short: 3 }, options)
    }

    /// The data that stands in a page.
    fn found(page: &str) -> Value {
        let (_, rest) = page.split_once("id=\"data\">").unwrap();
        let (data, _) = rest.split_once("</script>").unwrap();
        serde_json::from_str(data).unwrap()
    }

    /// The elements of a page that are opened and not closed, or closed and not opened.
    pub fn unbalanced(page: &str) -> Vec<String> {
        const VOID: [&str; 6] = ["meta", "link", "br", "input", "hr", "img"];
        let mut open: Vec<String> = Vec::new();
        let mut wrong = Vec::new();
        let mut rest = page;
        while let Some((_, behind)) = rest.split_once('<') {
            let (tag, after) = behind.split_once('>').unwrap();
            rest = after;
            let name: String = tag
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '/')
                .collect();
            if let Some(name) = name.strip_prefix('/') {
                if open.pop().as_deref() != Some(name) {
                    wrong.push(name.to_owned());
                }
            } else if !VOID.contains(&name.as_str()) && !tag.starts_with('!') && !tag.ends_with('/')
            {
                if let "script" | "style" = name.as_str() {
                    let end = format!("</{name}>");
                    rest = rest.split_once(end.as_str()).unwrap().1;
                } else {
                    open.push(name);
                }
            }
        }
        wrong.extend(open);
        wrong
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        let (report, options) = report(&["none", "cwl"], 20);
        let page = page(&report, &options);
        for part in ["%STYLE%\n", "%SCRIPT%", "%DATA%"] {
            assert!(!page.contains(part), "{part}");
        }
        for load in [
            "://", "src=", "href=", "@import", "url(", "fetch(", "import(",
        ] {
            assert!(!page.contains(load), "{load}");
        }
        assert_eq!(unbalanced(&page), [""; 0]);
        assert_eq!(unbalanced("<p><b></p>"), ["p", "p"]);
        assert!(page.starts_with("<!doctype html>"));
        assert!(page.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn every_policy_and_session_is_in_it() {
        let (report, options) = report(&["none", "cwl"], 20);
        let data = found(&page(&report, &options));
        assert_eq!(data["policies"], json!(["none", "cwl"]));
        assert_eq!(data["left_out"], 3);
        let names: Vec<_> = [0, 1].map(|at| data["sessions"][at]["name"].clone()).into();
        assert_eq!(names, ["first", "</script><b>%STYLE%"]);
        let session = &data["sessions"][0];
        let cost = FIGURES.iter().position(|name| *name == "cost").unwrap();
        assert_eq!(session["rows"][1][cost], json!(24.69136));
        assert_eq!(data["total"][1][cost], json!(49.38272));
        assert_eq!(session["requests"], 20);
        for ceiling in [0, 1] {
            // Who sends what the client sent needs no series of its own.
            assert_eq!(session["series"][ceiling][0], Value::Null);
            assert_eq!(session["series"][ceiling][1][1][19], 133);
            assert_eq!(session["passes"][ceiling][1], json!([[9, 56], [18, 119]]));
        }
        assert_eq!(session["client"][1][19], 190);
    }

    #[test]
    fn all_policies_have_a_colour() {
        for policy in evicting() {
            let rule = format!("--{}: #", policy.name());
            assert_eq!(STYLE.matches(&rule).count(), 2, "{rule}");
        }
    }

    #[test]
    fn the_page_of_a_long_report_stays_small() {
        let names: Vec<&str> = evicting().map(Policy::name).collect();
        let (mut report, options) = report(&names, 500);
        let one = report.sessions[0].clone();
        report.sessions = (0..38).map(|_| one.clone()).collect();
        let size = page(&report, &options).len();
        assert!(size < 3 << 20, "{size}");
    }

    proptest! {
        #[test]
        fn thinning_keeps_ends_of_stretches_in_order(sizes in prop::collection::vec(0_u64..1_000, 0..900), most in 2_usize..400) {
            let series: Vec<Point> = sizes.iter().map(|size| point(0, *size, false)).collect();
            let thin = thinned(&series, most, |point| point.sent);
            let list = |at: usize| -> Vec<u64> {
                thin[at].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
            };
            let (numbers, kept) = (list(0), list(1));
            prop_assert!(kept.len() <= most.max(sizes.len().min(most)) + 1);
            prop_assert_eq!(kept.iter().max(), sizes.iter().max());
            prop_assert_eq!(kept.iter().min(), sizes.iter().min());
            if numbers.is_empty() {
                prop_assert_eq!(kept, sizes);
            } else {
                prop_assert!(numbers.is_sorted_by(|a, b| a < b));
                for (number, size) in numbers.iter().zip(&kept) {
                    prop_assert_eq!(sizes[*number as usize - 1], *size);
                }
            }
        }
    }
}
