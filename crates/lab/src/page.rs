//! The figures of the pages that `replay` and `tune` write. Owns which figures a page gets and how series
//! are thinned. Pure: figures to JSON. Never draws: the console's modules do.

use std::collections::BTreeMap;

use plimsoll_core::policy::Policy;
use serde_json::{Value, json};

use super::outcome::{Played, Point, PolicyRun, Report, SessionOutcome};
use super::tune::{OVER, Surface};
use super::{Annotate, Options, Pricing, advice, json};

/// The figures of the page, by their names in the JSON.
const FIGURES: [&str; 17] = [
    "requests",
    "tokens_sent",
    "peak",
    "over_budget",
    "prune_rate",
    "passes",
    "prefix_breaks",
    "cached_share",
    "cost",
    "usd",
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

/// A model that sessions were recorded with, and what a plain input token is taken to cost in them.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelPrice {
    /// Its name, as the recordings have it.
    pub name: String,
    /// How many of the sessions are of it.
    pub sessions: usize,
    /// Dollars of a unit, if that is known.
    pub unit: Option<f64>,
}

impl ModelPrice {
    /// The models of a report, by name.
    #[must_use]
    pub fn of(report: &Report) -> Vec<Self> {
        let mut models: BTreeMap<&str, (usize, Option<f64>)> = BTreeMap::new();
        for session in &report.sessions {
            let model = models.entry(&session.model).or_default();
            *model = (model.0 + 1, session.unit);
        }
        let model = |(name, (sessions, unit)): (&str, (usize, Option<f64>))| Self {
            name: name.to_owned(),
            sessions,
            unit,
        };
        models.into_iter().map(model).collect()
    }

    fn json(&self) -> Value {
        // A price has few digits, and none of them is lost.
        let million = self.unit.map(|unit| (unit * 1e12).round() / 1e6);
        json!({"name": self.name, "sessions": self.sessions, "usd_per_million": million})
    }
}

/// What the page of a report shows. `report` must hold at least one session.
#[must_use]
pub fn report(report: &Report, options: &Options) -> Value {
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
    let models = ModelPrice::of(report);
    json!({
        "figures": FIGURES,
        "policies": names,
        "settings": {
            "budgets": options.ceilings,
            "floor": json::floor(options.floor),
            "annotate": match options.annotate {
                Annotate::None => "marked by nobody",
                Annotate::Inferred => "inferred from the tools, at no cost",
                Annotate::Scripted => "marked by a scripted model, and charged",
                Annotate::Obedient => "marked by a model that does as it is asked, and charged",
            },
            "prices": options.pricing.name,
        },
        "models": models.iter().map(ModelPrice::json).collect::<Vec<_>>(),
        "left_out": report.short,
        "total": total,
        "by_budget": by_ceiling(report, options),
        "sessions": sessions,
    })
}

/// What the page of a surface shows: what its JSON has, and what stands on the front, in words too.
#[must_use]
pub fn surface(surface: &Surface, pricing: &Pricing) -> Value {
    let mut value = advice::json(surface, &pricing.name);
    let over = surface.cells.iter().map(|cell| cell.over() > OVER);
    let models = surface.models.iter().map(ModelPrice::json);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("front".to_owned(), json!(surface.front()));
        fields.insert("over".to_owned(), over.collect());
        fields.insert("choice".to_owned(), json!(advice::choice(surface)));
        fields.insert("models".to_owned(), models.collect());
    }
    value
}

/// For each ceiling the figures of each policy over all sessions; nothing where there is one ceiling.
fn by_ceiling(report: &Report, options: &Options) -> Vec<Value> {
    if options.ceilings.len() < 2 {
        return Vec::new();
    }
    let at = |at: usize| {
        let totals = report.policies_at(at);
        let rows = totals.iter();
        rows.map(|(name, outcome)| row(&json::policy(name, outcome)))
            .collect()
    };
    (0..options.ceilings.len()).map(at).collect()
}

/// The figures of one policy in the order of [`FIGURES`], with all of their digits: what is rounded twice may
/// differ from what the table shows.
fn row(policy: &Value) -> Value {
    let figure = |name: &&str| policy.get(*name).cloned().unwrap_or(Value::Null);
    FIGURES.iter().map(figure).collect()
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
    let each: Vec<Value> = if options.ceilings.len() < 2 {
        Vec::new()
    } else {
        by_ceiling(|played, run, _| row(&json::policy(&played.policy, &run.outcome)))
    };
    json!({
        "name": session.name,
        "model": session.model,
        "tokens": session.tokens,
        "requests": untouched.len(),
        "rows": rows,
        "by_budget": each,
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
mod tests {
    use proptest::prelude::*;

    use super::super::evicting;
    use super::super::outcome::{Outcome, Share};
    use super::super::tune::Cell;
    use super::*;
    use plimsoll_core::commit::Floor;

    fn point(client: u64, sent: u64, passed: bool) -> Point {
        Point {
            client,
            sent,
            passed,
        }
    }

    /// A report of two sessions, one of them named by somebody who means no good.
    fn played(policies: &[&str], requests: u64) -> (Report, Options) {
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
                usd: 0.5,
                ..Outcome::default()
            },
            series: (0..requests)
                .map(|at| point(at * 10, at * 7, at % 9 == 8))
                .collect(),
            ..PolicyRun::default()
        };
        let session = |name: &str| SessionOutcome {
            name: name.to_owned(),
            model: "gpt-5".to_owned(),
            unit: Some(1.25e-6),
            policies: policies
                .iter()
                .map(|policy| Played {
                    policy: (*policy).to_owned(),
                    runs: options.ceilings.iter().map(run).collect(),
                })
                .collect(),
            ..SessionOutcome::default()
        };
        let sessions = vec![session("first"), session("</script><b>")];
        (Report { sessions, short: 3 }, options)
    }

    #[test]
    fn every_policy_and_session_is_in_it() {
        let (played, options) = played(&["none", "cwl"], 20);
        let data = report(&played, &options);
        assert_eq!(data["policies"], json!(["none", "cwl"]));
        assert_eq!(data["left_out"], 3);
        let names: Vec<_> = [0, 1].map(|at| data["sessions"][at]["name"].clone()).into();
        assert_eq!(names, ["first", "</script><b>"]);
        let session = &data["sessions"][0];
        let cost = FIGURES.iter().position(|name| *name == "cost").unwrap();
        assert_eq!(session["rows"][1][cost], json!(24.691_357_8));
        assert_eq!(data["total"][1][cost], json!(49.382_715_6));
        let usd = FIGURES.iter().position(|name| *name == "usd").unwrap();
        assert_eq!(data["total"][1][usd], json!(2.0));
        for ceiling in [0, 1] {
            assert_eq!(data["by_budget"][ceiling][1][cost], json!(24.691_357_8));
            assert_eq!(session["by_budget"][ceiling][1][cost], json!(12.345_678_9));
        }
        let model = json!({"name": "gpt-5", "sessions": 2, "usd_per_million": 1.25});
        assert_eq!(data["models"], json!([model]));
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
    fn all_policies_have_an_ink_in_both_themes() {
        let style = include_str!("../../../console/base.css");
        for policy in evicting() {
            let rule = format!("--p-{}: light-dark(", policy.name());
            assert_eq!(style.matches(&rule).count(), 1, "{rule}");
        }
    }

    #[test]
    fn the_figures_of_a_long_report_stay_small() {
        let names: Vec<&str> = evicting().map(Policy::name).collect();
        let (mut played, options) = played(&names, 500);
        let one = played.sessions[0].clone();
        played.sessions = (0..38).map(|_| one.clone()).collect();
        let size = report(&played, &options).to_string().len();
        assert!(size < 3 << 20, "{size}");
    }

    #[test]
    fn a_surface_has_the_figures_of_its_json_and_the_front() {
        let cell = |ceiling, cost, over| Cell {
            ceiling,
            floor: Floor::Auto,
            outcome: Outcome {
                requests: 100,
                passes: 7,
                cost,
                over,
                visible: Share {
                    part: u64::from(ceiling) / 1_000,
                    whole: 1_000,
                },
                ..Outcome::default()
            },
        };
        let tried = Surface {
            cells: vec![
                cell(40_000, 4e6, 90),
                cell(60_000, 9e6, 0),
                cell(80_000, 8e6, 0),
            ],
            sessions: 1,
            ..Surface::default()
        };
        let data = surface(&tried, &Pricing::default());
        let told = advice::json(&tried, "ideal");
        for (name, value) in told.as_object().unwrap() {
            assert_eq!(data[name], *value, "{name}");
        }
        assert_eq!(data["front"], json!([0, 2]));
        assert_eq!(data["over"], json!([true, false, false]));
        assert_eq!(data["choice"], advice::choice(&tried));
        assert!(data["choice"].as_str().unwrap().contains("tokens = 80000"));
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
