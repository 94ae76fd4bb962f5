//! A swept surface as one page that loads nothing: a map of ceilings and floors for each of cost,
//! retention and passes, and cost against retention. Pure: figures to text. Never chooses, and the
//! words of the choice are those of `advice`.

use std::fmt::Write as _;

use super::advice;
use super::outcome::Outcome;
use super::table::{fine, millions};
use super::tune::{Cell, OVER, Surface};
use crate::commit::Floor;

const PAGE: &str = include_str!("html/surface.html");
const STYLE: &str = include_str!("html/page.css");

/// The size of the chart in its own units.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 380.0;
/// Room for the scales at the left and at the foot, and for names at the other two sides.
const LEFT: f64 = 70.0;
const FOOT: f64 = 46.0;
const EDGE: f64 = 24.0;
/// Lines of a scale.
const TICKS: u8 = 4;

/// A figure that has a map of its own.
struct Figure {
    title: &'static str,
    note: &'static str,
    value: fn(&Cell, &Outcome) -> f64,
    shown: fn(f64) -> String,
    /// Whether less of it is better.
    less: bool,
}

const FIGURES: [Figure; 5] = [
    Figure {
        title: "Cost",
        note: "All input, to what sending everything costs. Darker is cheaper.",
        value: |cell, none| advice::ratio(&cell.outcome, none),
        shown: |ratio| format!("{ratio:.3}"),
        less: true,
    },
    Figure {
        title: "Retention of strings (K)",
        note: "Of the distinctive strings that calls needed, the share that was still visible. Darker is more.",
        value: |cell, _| cell.kept(),
        shown: fine,
        less: false,
    },
    Figure {
        title: "Retention of lines (L)",
        note: "Of the whole lines that calls needed, the share that was still visible. Darker is more.",
        value: |cell, _| cell.outcome.lines.kept(),
        shown: fine,
        less: false,
    },
    Figure {
        title: "Retention of passages (P)",
        note: "Of the passages that answers repeated, the share that was still visible, by rarity. Darker is more.",
        value: |cell, _| cell.outcome.passages.kept(),
        shown: fine,
        less: false,
    },
    Figure {
        title: "Passes",
        note: "How often items were taken out, each of which breaks the provider's cache. Darker is fewer.",
        value: |cell, _| cell.outcome.passes as f64,
        shown: |passes| format!("{passes:.0}"),
        less: true,
    },
];

/// The page.
#[must_use]
pub fn page(surface: &Surface, prices: &str) -> String {
    let take = surface.advice().filter(|_| !surface.is_idle());
    let take = take.map(|advice| advice.knee);
    let settings = format!(
        "cwl on {} sessions ({} shorter ones left out), at every pair of these ceilings (τ) and \
         floors; sent whole they cost {} million plain input tokens. Prices: {}.",
        surface.sessions,
        surface.short,
        millions(surface.untouched.cost),
        prices,
    );
    let mut maps = String::new();
    for figure in &FIGURES {
        let _ = writeln!(
            maps,
            "<section><h2>{}</h2><p class=\"note\">{}</p><div class=\"scroll\">{}</div></section>",
            figure.title,
            figure.note,
            map(surface, figure, take)
        );
    }
    PAGE.replace("%STYLE%", STYLE)
        .replace("%MAPS%", &maps)
        .replace("%FRONT%", &front(surface, take))
        .replace("%CHOICE%", &escaped(&advice::choice(surface)))
        .replace("%SETTINGS%", &escaped(&settings))
}

/// A table of one figure: a row for each floor, a column for each ceiling.
fn map(surface: &Surface, figure: &Figure, take: Option<usize>) -> String {
    let mut ceilings: Vec<u32> = surface.cells.iter().map(|cell| cell.ceiling).collect();
    ceilings.dedup();
    let mut floors: Vec<Floor> = Vec::new();
    for cell in &surface.cells {
        if !floors.contains(&cell.floor) {
            floors.push(cell.floor);
        }
    }
    let value = |cell: &Cell| (figure.value)(cell, &surface.untouched);
    let (low, high) = range(surface.cells.iter().map(value));
    let mut text = String::from("<table><thead><tr><th>floor \\ τ</th>");
    for ceiling in &ceilings {
        let _ = write!(text, "<th>{ceiling}</th>");
    }
    text.push_str("</tr></thead><tbody>");
    for floor in floors {
        let _ = write!(text, "<tr><td>{}</td>", advice::word(floor));
        let row = surface.cells.iter().enumerate();
        for (at, cell) in row.filter(|(_, cell)| cell.floor == floor) {
            let part = share(value(cell), low, high);
            let _ = write!(
                text,
                "<td class=\"cell{}{}\" style=\"--part:{:.2}\" title=\"{}\">{}</td>",
                if take == Some(at) { " take" } else { "" },
                if cell.over() > OVER { " over" } else { "" },
                if figure.less { 1.0 - part } else { part },
                told(cell),
                (figure.shown)(value(cell)),
            );
        }
        text.push_str("</tr>");
    }
    text.push_str("</tbody></table>");
    text
}

/// Cost against retention, a dot for each setting.
fn front(surface: &Surface, take: Option<usize>) -> String {
    if surface.cells.is_empty() {
        return String::new();
    }
    let (cheap, dear) = range(surface.cells.iter().map(|cell| cell.outcome.cost));
    let (least, most) = range(surface.cells.iter().map(Cell::kept));
    let across = |part: f64| LEFT + part * (WIDTH - LEFT - EDGE);
    let up = |part: f64| HEIGHT - FOOT - part * (HEIGHT - FOOT - EDGE);
    let place = |cell: &Cell| {
        let cost = share(cell.outcome.cost, cheap, dear);
        (across(cost), up(share(cell.kept(), least, most)))
    };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"cost against retention\">"
    );
    for tick in 0..=TICKS {
        let part = f64::from(tick) / f64::from(TICKS);
        let (x, y) = (across(part), up(part));
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{beside}\" y=\"{y:.1}\" dy=\"4\" text-anchor=\"end\">{kept}</text>\
             <text x=\"{x:.1}\" y=\"{foot}\" text-anchor=\"middle\">{cost}</text>",
            right = WIDTH - EDGE,
            beside = LEFT - 8.0,
            kept = fine(least + part * (most - least)),
            foot = HEIGHT - FOOT + 18.0,
            cost = millions(cheap + part * (dear - cheap)),
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">cost, million plain input tokens</text>\
         <text x=\"{LEFT}\" y=\"14\">K</text>",
        across(0.5),
        HEIGHT - 6.0
    );
    let mut best: Vec<&Cell> = surface
        .front()
        .iter()
        .filter_map(|at| surface.cells.get(*at))
        .collect();
    best.sort_by(|a, b| a.outcome.cost.total_cmp(&b.outcome.cost));
    let points = best.iter().map(|cell| {
        let (x, y) = place(cell);
        format!("{x:.1},{y:.1}")
    });
    let points: Vec<String> = points.collect();
    let _ = write!(
        svg,
        "<polyline class=\"front\" points=\"{}\"/>",
        points.join(" ")
    );
    for (at, cell) in surface.cells.iter().enumerate() {
        let ((x, y), chosen) = (place(cell), take == Some(at));
        let fill = if chosen { "var(--cwl)" } else { "var(--page)" };
        let _ = write!(
            svg,
            "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{}\" fill=\"{fill}\" \
             stroke=\"var(--cwl)\"><title>{}</title></circle>",
            if chosen { 7 } else { 4 },
            told(cell),
        );
        if cell.over() > OVER {
            let _ = write!(
                svg,
                "<line class=\"cross\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                x - 5.0,
                x + 5.0,
                y + 5.0,
                y - 5.0
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

/// A setting with its figures, for who points at it.
fn told(cell: &Cell) -> String {
    format!(
        "τ = {}, floor {}: cost {}, K {}, L {}, P {}, {} passes, {} of {} requests over τ",
        cell.ceiling,
        advice::word(cell.floor),
        millions(cell.outcome.cost),
        fine(cell.kept()),
        fine(cell.outcome.lines.kept()),
        fine(cell.outcome.passages.kept()),
        cell.outcome.passes,
        cell.outcome.over,
        cell.outcome.requests + cell.outcome.extra,
    )
}

/// The least and the most of some figures.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

/// Where a value stands between two others, from 0 to 1; in the middle where these are equal.
fn share(value: f64, low: f64, high: f64) -> f64 {
    if high > low {
        (value - low) / (high - low)
    } else {
        0.5
    }
}

/// A text that stands for itself in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::super::html::tests::unbalanced;
    use super::super::outcome::Share;
    use super::*;

    fn surface(passes: u64) -> Surface {
        let cell = |ceiling, floor, cost, kept, over| Cell {
            ceiling,
            floor,
            outcome: Outcome {
                requests: 1_000,
                passes,
                cost,
                over,
                visible: Share {
                    part: kept,
                    whole: 1_000,
                },
                ..Outcome::default()
            },
        };
        Surface {
            cells: vec![
                cell(30_000, Floor::Auto, 4e6, 950, 900),
                cell(30_000, Floor::Fraction(0.6), 4.5e6, 960, 0),
                cell(80_000, Floor::Auto, 8e6, 992, 0),
                cell(80_000, Floor::Fraction(0.6), 7e6, 994, 0),
            ],
            untouched: cell(0, Floor::Auto, 1e7, 1_000, 0).outcome,
            sessions: 3,
            short: 2,
        }
    }

    #[test]
    fn every_setting_is_in_every_map_and_in_the_chart() {
        let page = page(&surface(7), "<ideal> & more");
        assert_eq!(page.matches("<table>").count(), FIGURES.len());
        assert_eq!(page.matches("class=\"cell").count(), FIGURES.len() * 4);
        assert_eq!(page.matches("class=\"cell take\"").count(), FIGURES.len());
        assert_eq!(page.matches("class=\"cell over\"").count(), FIGURES.len());
        assert_eq!(page.matches("<circle").count(), 4);
        assert_eq!(page.matches("r=\"7\"").count(), 1);
        assert!(page.contains("Prices: &lt;ideal> &amp; more."), "{page}");
        assert!(page.contains("Take τ = 80000 with floor 0.6"), "{page}");
        assert!(page.contains("ceiling = 80000\nfloor = 0.6"), "{page}");
        // Of those on the front the cheapest stands first, at the lower left.
        assert!(page.contains("points=\"70.0,334.0 "), "{page}");
    }

    #[test]
    fn the_page_is_whole_and_loads_nothing() {
        for surface in [surface(7), surface(0), Surface::default()] {
            let page = page(&surface, "ideal");
            assert_eq!(unbalanced(&page), [""; 0]);
            for load in [
                "://", "src=", "href=", "@import", "url(", "<script", "%MAPS%", "NaN", "inf",
            ] {
                assert!(!page.contains(load), "{load}");
            }
        }
    }

    #[test]
    fn what_was_never_evicted_is_no_ground_for_a_choice() {
        let page = page(&surface(0), "ideal");
        assert!(page.contains("stay with the defaults"), "{page}");
        assert!(!page.contains("cell take"), "{page}");
    }
}
