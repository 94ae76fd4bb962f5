//! What sessions cost and saved between times: by bar, by model, program, tenant and by what calls were for. Owns how the
//! hours of rows are put into bars, whose bounds the page names because it alone knows the zone. Never reads a record.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use plimsoll_model::{HourSums, SessionRow, TurnSums, hours};
use plimsoll_proxy::pipeline::App;
use plimsoll_proxy::record::{CallRole, lossy};
use serde_json::{Value, json};

use super::error::ConsoleError;
use super::query::Query;
use super::{known, rows};

/// How many bars are told of at most: those of a year of weeks, or of a month of days by the quarter.
const MOST_BARS: usize = 400;
/// How many models, programs or tenants are named at most. What is left is summed up as one.
const MOST_NAMED: usize = 20;

/// What was added up. Money is in US dollars.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    sessions: u64,
    turns: u64,
    /// Turns whose price is not known, so that they cost nothing here.
    unpriced: u64,
    paid: f64,
    whole: f64,
    saved: f64,
    sent: u64,
    client: u64,
}

impl Spent {
    /// What an hour of a session came to. What was only watched was paid as it came, and nothing of it was saved.
    fn of(row: &SessionRow, hour: &HourSums) -> Self {
        let is_watched = rows::is_watched(row);
        let turns = u64::from(hour.turns);
        let mut spent = Self {
            turns,
            sent: if is_watched { hour.client } else { hour.sent },
            client: hour.client,
            ..Self::default()
        };
        if hour.paid == 0.0 && hour.whole == 0.0 {
            spent.unpriced = turns;
            return spent;
        }
        spent.whole = f64::from(hour.whole);
        (spent.paid, spent.saved) = match is_watched {
            true => (spent.whole, 0.0),
            false => (f64::from(hour.paid), f64::from(hour.saved)),
        };
        spent
    }

    fn add(&mut self, one: &Self) {
        self.sessions += one.sessions;
        self.turns += one.turns;
        self.unpriced += one.unpriced;
        self.paid += one.paid;
        self.whole += one.whole;
        self.saved += one.saved;
        self.sent += one.sent;
        self.client += one.client;
    }

    fn shown(&self) -> Value {
        json!({
            "sessions": self.sessions,
            "turns": self.turns,
            "unpriced": self.unpriced,
            "paid": self.paid,
            "whole": self.whole,
            "saved": self.saved,
            "sent": self.sent,
            "client": self.client,
        })
    }
}

type Named = BTreeMap<String, Spent>;

/// What is asked, and what was found of it.
struct Spending {
    /// Where bars begin, in milliseconds since 1970. The last one has no end.
    bounds: Vec<u64>,
    bars: Vec<Spent>,
    total: Spent,
    models: Named,
    agents: Named,
    tenants: Named,
    /// What was paid by what calls were for.
    hidden: f64,
    aside: f64,
    /// Rows that were read.
    rows: usize,
}

/// The answer.
pub fn spend(app: &App, began: u64, mut query: Query) -> Result<Value, ConsoleError> {
    let bounds = query.take("bounds").unwrap_or_default();
    query.end("what was spent")?;
    let bounds = parse(&bounds)?;
    let mut spending = Spending {
        bars: vec![Spent::default(); bounds.len()],
        bounds,
        total: Spent::default(),
        models: Named::new(),
        agents: Named::new(),
        tenants: Named::new(),
        hidden: 0.0,
        aside: 0.0,
        rows: 0,
    };
    let mut is_whole = true;
    for store in [&app.store, &app.watched] {
        known::each_row(store, "", &mut |row| {
            let told = spending.add(&row);
            is_whole &= spending.rows < rows::MOST_SORTED;
            told.is_continue() && is_whole
        })?;
    }
    let beside = app.live.beside();
    let beside = spending.beside(beside.iter());
    Ok(spending.shown(began, &beside, is_whole))
}

/// Where the bars begin.
fn parse(text: &str) -> Result<Vec<u64>, ConsoleError> {
    let bounds: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
    let bounds = bounds.unwrap_or_default();
    let rises = bounds.is_sorted_by(|one, next| one < next);
    let fits = (1..=MOST_BARS).contains(&bounds.len()) && rises;
    let message = || {
        format!(
            "`bounds` is 1 to {MOST_BARS} times in milliseconds since 1970, rising, with commas between"
        )
    };
    fits.then_some(bounds)
        .ok_or_else(|| ConsoleError::parameter(message()))
}

impl Spending {
    /// The bar of an hour that was told of when this was the newest. None if it was before all.
    fn bar(&self, hour: u32, newest: u32) -> Option<usize> {
        let at = hours::middle(hour, newest);
        self.bounds
            .partition_point(|bound| *bound <= at)
            .checked_sub(1)
    }

    /// Adds a session. Those behind one that ended before all bars did so, too.
    fn add(&mut self, row: &SessionRow) -> ControlFlow<()> {
        let newest = hours::hour(row.ended);
        if self.bar(newest, newest).is_none() {
            return ControlFlow::Break(());
        }
        self.rows += 1;
        let mut all = Spent::default();
        // A row that was written before rows had hours counts where it ended.
        let ended = [HourSums::between(newest, &TurnSums::default(), &row.sums)];
        let hours = match row.hours.as_slice() {
            [] => &ended,
            hours => hours,
        };
        for hour in hours {
            let Some(bar) = self.bar(hour.hour, newest) else {
                continue;
            };
            let spent = Spent::of(row, hour);
            if let Some(bar) = self.bars.get_mut(bar) {
                bar.add(&spent);
            }
            let model = hour.model.as_ref().unwrap_or(&row.model);
            add(&mut self.models, model, &spent);
            all.add(&spent);
            if !rows::is_watched(row) {
                self.hidden += f64::from(hour.hidden);
                self.aside += f64::from(hour.aside);
            }
        }
        all.sessions = u64::from(!row.branch && all.turns > 0);
        if all.turns > 0 {
            add(&mut self.agents, row.agent.as_deref().unwrap_or(""), &all);
            add(&mut self.tenants, &row.tenant.hex(), &all);
        }
        self.total.add(&all);
        ControlFlow::Continue(())
    }

    /// What requests beside sessions came to, in the same time. Their hours add up as if they were one.
    fn beside<'a>(&self, hours: impl Iterator<Item = &'a HourSums>) -> HourSums {
        let mut sum = HourSums::default();
        for hour in hours.filter(|hour| self.bar(hour.hour, hour.hour).is_some()) {
            sum.join(hour.clone());
        }
        sum
    }

    fn shown(self, began: u64, beside: &HourSums, is_whole: bool) -> Value {
        let bars = self.bounds.iter().zip(&self.bars).map(|(from, bar)| {
            let mut shown = bar.shown();
            if let Value::Object(fields) = &mut shown {
                fields.insert("from".to_owned(), (*from).into());
                // A session that goes on from one bar to the next is one in the sum alone.
                fields.remove("sessions");
            }
            shown
        });
        let roles = CallRole::ALL.map(|role| {
            let (hidden, aside) = (f64::from(beside.hidden), f64::from(beside.aside));
            let paid = match role {
                CallRole::Hidden => self.hidden + hidden,
                CallRole::Aside => self.aside + aside,
                CallRole::Main => {
                    let own = self.total.paid - self.hidden - self.aside;
                    own + f64::from(beside.paid) - hidden - aside
                }
            };
            json!({"name": role.name(), "paid": paid})
        });
        json!({
            "bars": bars.collect::<Vec<Value>>(),
            "total": self.total.shown(),
            "by": {
                "model": named(self.models),
                "agent": named(self.agents),
                "tenant": named(self.tenants),
                "role": roles,
            },
            "beside": {"turns": beside.turns, "paid": beside.paid, "since": began},
            "whole": is_whole,
        })
    }
}

fn add(named: &mut Named, name: &str, spent: &Spent) {
    if let Some(sum) = named.get_mut(name) {
        sum.add(spent);
    } else {
        named.insert(name.to_owned(), *spent);
    }
}

/// Those that cost most, and the rest as one without a name, which is null.
fn named(named: Named) -> Value {
    let mut rows: Vec<(String, Spent)> = named.into_iter().collect();
    let cost = |spent: &Spent| (spent.paid, lossy(spent.sent));
    rows.sort_by(|(_, one), (_, other)| {
        let (one, other) = (cost(one), cost(other));
        other.0.total_cmp(&one.0).then(other.1.total_cmp(&one.1))
    });
    let rest = rows.split_off(rows.len().min(MOST_NAMED));
    let row = |name: Value, spent: &Spent| {
        let mut shown = spent.shown();
        if let Value::Object(fields) = &mut shown {
            fields.insert("name".to_owned(), name);
        }
        shown
    };
    let mut shown: Vec<Value> = rows
        .iter()
        .map(|(name, spent)| row(name.as_str().into(), spent))
        .collect();
    if !rest.is_empty() {
        let mut sum = Spent::default();
        rest.iter().for_each(|(_, spent)| sum.add(spent));
        shown.push(row(Value::Null, &sum));
    }
    shown.into()
}
