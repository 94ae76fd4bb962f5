//! The form of `config/models.toml`, and its meaning.
//!
//! Owns the names of the fields. Never shows the raw form to another file, and refuses unknown
//! fields, so that a misspelt one does not silently become a default.

use std::collections::BTreeMap;
use std::time::Duration;

use globset::{Glob, GlobSetBuilder};
use plimsoll_model::{ReasoningBack, ReasoningRead};
use serde::Deserialize;

use super::error::ModelsError;
use super::family::{CacheModel, Family, FamilyTable};
use super::overflow::Overflow;
use crate::encoding::Encoding;
use crate::price::Prices;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModelTable {
    #[serde(default)]
    context_length: RawOverflow,
    #[serde(default)]
    caches: BTreeMap<String, RawCacheModel>,
    #[serde(default)]
    family: Vec<RawFamily>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOverflow {
    #[serde(default)]
    codes: Vec<String>,
    #[serde(default)]
    patterns: Vec<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case", tag = "kind")]
enum RawCacheModel {
    Automatic {
        step: u32,
        ttl_seconds: u64,
    },
    Breakpoints {
        max: u32,
        ttl_seconds: u64,
        look_back: Option<u32>,
        implicit: bool,
        /// The price of a write that is kept for an hour, relative to an input of 1.0.
        hour_write: Option<f64>,
    },
    None,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawEncoding {
    O200k,
    Cl100k,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFamily {
    name: String,
    models: Vec<String>,
    encoding: Option<RawEncoding>,
    window: Option<u32>,
    context: Option<u32>,
    usd: Option<RawPrices>,
    relative: Option<RawPrices>,
    cache: Option<String>,
    #[serde(default)]
    reasoning_back: ReasoningBack,
    #[serde(default)]
    reasoning_read: ReasoningRead,
    #[serde(default)]
    system_among: bool,
}

/// Prices of a million tokens in dollars, or of a token relative to an input of 1.0.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPrices {
    input: f64,
    read: Option<f64>,
    write: Option<f64>,
    output: f64,
}

/// Reads a table and its patterns for context-length errors.
pub(super) fn parse(toml: &str) -> Result<(FamilyTable, Overflow), ModelsError> {
    let raw: RawModelTable = toml::from_str(toml)?;
    let table = table(raw.family, &raw.caches)?;
    let overflow = Overflow::new(raw.context_length.codes, &raw.context_length.patterns)?;
    Ok((table, overflow))
}

fn table(
    rows: Vec<RawFamily>,
    caches: &BTreeMap<String, RawCacheModel>,
) -> Result<FamilyTable, ModelsError> {
    let mut globs = GlobSetBuilder::new();
    let mut owners = Vec::new();
    let mut families = Vec::new();
    for row in rows {
        for pattern in &row.models {
            // Names are looked up in lower case, because patterns without a case flag match
            // fastest.
            let glob = Glob::new(&pattern.to_lowercase());
            let family = row.name.clone();
            globs.add(glob.map_err(|source| ModelsError::Glob { family, source })?);
            owners.push(families.len());
        }
        families.push(family(row, caches)?);
    }
    let globs = globs.build().map_err(|source| {
        // Each pattern was valid by itself, so the refusal must be about their number.
        ModelsError::Glob {
            family: "all".to_owned(),
            source,
        }
    })?;
    Ok(FamilyTable {
        families,
        globs,
        owners,
    })
}

fn family(raw: RawFamily, caches: &BTreeMap<String, RawCacheModel>) -> Result<Family, ModelsError> {
    let number = |what| ModelsError::Number {
        family: raw.name.clone(),
        what,
    };
    // A window of zero would make every prompt too long.
    if raw.window == Some(0) {
        return Err(number("window"));
    }
    if raw.context == Some(0) {
        return Err(number("context"));
    }
    // Both say how much a model takes, and nobody could say which one counts.
    if raw.window.is_some() && raw.context.is_some() {
        return Err(ModelsError::Both(raw.name));
    }
    let prices = match (raw.usd, raw.relative) {
        (Some(usd), _) => {
            let relative = usd.relative().ok_or_else(|| number("each price"))?;
            Prices {
                usd_per_mtok: Some(usd.input),
                ..relative
            }
        }
        (None, Some(relative)) => relative.relative().ok_or_else(|| number("each price"))?,
        (None, None) => Prices::default(),
    };
    let hour_write = hour_write(&raw, caches).unwrap_or(prices.write);
    if !is_price(hour_write) {
        return Err(number("each price"));
    }
    Ok(Family {
        encoding: raw
            .encoding
            .map_or_else(Encoding::default, RawEncoding::meaning),
        window: raw.window,
        context: raw.context,
        cut: None,
        prices: Prices {
            hour_write,
            ..prices
        },
        cache: cache(&raw, caches)?,
        reasoning_back: raw.reasoning_back,
        reasoning_read: raw.reasoning_read,
        system_among: raw.system_among,
        by_user: false,
        name: raw.name,
    })
}

fn cache(
    raw: &RawFamily,
    caches: &BTreeMap<String, RawCacheModel>,
) -> Result<CacheModel, ModelsError> {
    let Some(name) = &raw.cache else {
        return Ok(CacheModel::default());
    };
    caches
        .get(name)
        .copied()
        .map(RawCacheModel::meaning)
        .ok_or_else(|| ModelsError::Cache {
            family: raw.name.clone(),
            cache: name.clone(),
        })
}

/// What the family's cache says that a write costs which is kept for an hour.
fn hour_write(raw: &RawFamily, caches: &BTreeMap<String, RawCacheModel>) -> Option<f64> {
    match caches.get(raw.cache.as_ref()?)? {
        RawCacheModel::Breakpoints { hour_write, .. } => *hour_write,
        RawCacheModel::Automatic { .. } | RawCacheModel::None => None,
    }
}

fn is_price(price: f64) -> bool {
    price.is_finite() && price > 0.0
}

impl RawCacheModel {
    fn meaning(self) -> CacheModel {
        match self {
            Self::Automatic { step, ttl_seconds } => CacheModel::Automatic {
                step,
                ttl: Duration::from_secs(ttl_seconds),
            },
            Self::Breakpoints {
                max,
                ttl_seconds,
                look_back,
                implicit,
                hour_write: _,
            } => {
                let ttl = Duration::from_secs(ttl_seconds);
                CacheModel::Breakpoints {
                    max,
                    ttl,
                    look_back,
                    implicit,
                }
            }
            Self::None => CacheModel::None,
        }
    }
}

impl RawEncoding {
    fn meaning(self) -> Encoding {
        match self {
            Self::O200k => Encoding::O200k,
            Self::Cl100k => Encoding::Cl100k,
        }
    }
}

impl RawPrices {
    /// The prices relative to that of input. `None` if one is not a number or not greater than
    /// zero. A price that is missing equals that of input: there is no discount and no surcharge.
    fn relative(self) -> Option<Prices> {
        let read = self.read.unwrap_or(self.input);
        let write = self.write.unwrap_or(self.input);
        let all = [self.input, read, write, self.output]
            .into_iter()
            .all(is_price);
        all.then(|| Prices {
            plain: 1.0,
            read: read / self.input,
            write: write / self.input,
            hour_write: write / self.input,
            output: self.output / self.input,
            usd_per_mtok: None,
        })
    }
}
