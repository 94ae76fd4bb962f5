//! How much memory the caches between requests may take: one amount for all, and a fixed share for
//! each. All caches are made here, so that each is bounded by bytes alone. Never knows what is
//! cached.

use std::hash::Hash;
use std::sync::Arc;

use bytes::Bytes;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::label_set;
use super::weight::block;

label_set!(
    /// What is cached between requests.
    CacheName {
        /// Folded paths with their records.
        Paths => "paths",
        /// What is known of messages.
        Shapes => "shapes",
        /// Sizes of texts that come with every request.
        Sizes => "sizes",
        /// The strings of originals.
        Words => "words",
        /// The strings of what is gone from views.
        Gone => "gone",
        /// What is left of calls.
        Lefts => "lefts",
        /// Lines of what is gone.
        Notes => "notes",
        /// How messages begin.
        Fronts => "fronts",
        /// Sessions that were served lately.
        Sessions => "sessions",
        /// Records of turns that are only watched.
        Watched => "watched",
        /// The newest requests of sessions, for the console.
        Bodies => "bodies",
        /// Requests from which something was evicted, for what their clients drop later.
        Histories => "histories",
        /// Sessions that the console has read.
        Console => "console",
    }
);

/// Bytes that all caches take together by default.
pub const MEMORY: usize = 256 << 20;
/// The least that may be configured, in bytes.
pub const LEAST: usize = 4 << 20;

/// The number of parts that the whole is divided into.
const PARTS: usize = 64;
/// A low estimate of the bytes of one value. It sets how many keys of dropped values a cache
/// remembers.
const TYPICAL: u64 = 1024;
/// Shards of the cache of paths. A cache has by default four shards for each core, so that requests
/// seldom wait for each other. A value must fit into one shard, and the path of a long session is
/// large; but each request reads only one path.
const PATH_SHARDS: usize = 4;
/// Shards of the caches whose values are large for their share: whole sessions for the console, of which one of five
/// thousand turns has to fit, the strings of what is gone from a view, and long requests.
const LARGE_SHARDS: usize = 1;

/// The bytes that one cache may take of `all`.
#[must_use]
pub const fn share(cache: CacheName, all: usize) -> usize {
    let parts = match cache {
        CacheName::Paths => 19,
        CacheName::Words | CacheName::Shapes => 9,
        CacheName::Lefts
        | CacheName::Notes
        | CacheName::Bodies
        | CacheName::Histories
        | CacheName::Console => 4,
        CacheName::Watched | CacheName::Gone => 2,
        CacheName::Sizes | CacheName::Fronts | CacheName::Sessions => 1,
    };
    all / PARTS * parts
}

/// The bytes of a cache entry in addition to what its value owns. The tables have up to twice as
/// much room as they need, because they grow by doubling.
pub const fn entry<K, V>() -> usize {
    2 * (size_of::<K>() + size_of::<V>() + 32) + 24
}

/// What a cached value owns of memory.
pub trait Weigh {
    /// In bytes, without its place in the cache.
    fn owned(&self) -> usize;
}

impl Weigh for u32 {
    fn owned(&self) -> usize {
        0
    }
}

impl Weigh for Bytes {
    fn owned(&self) -> usize {
        self.len()
    }
}

impl Weigh for Arc<str> {
    fn owned(&self) -> usize {
        block(self.len() + 2 * size_of::<usize>())
    }
}

/// What a value takes of memory where it is shared.
pub trait Shared {
    /// In bytes: the value with its two reference counts, and what it owns.
    fn weight(&self) -> usize;
}

impl<T: Shared> Weigh for Arc<T> {
    fn owned(&self) -> usize {
        self.weight()
    }
}

impl<T: Weigh> Weigh for Option<T> {
    fn owned(&self) -> usize {
        self.as_ref().map_or(0, T::owned)
    }
}

/// Weighs values by the memory that they take.
#[derive(Clone, Debug)]
pub struct ByBytes;

impl<K, V: Weigh> Weighter<K, V> for ByBytes {
    fn weight(&self, _key: &K, value: &V) -> u64 {
        (value.owned() + entry::<K, V>()) as u64
    }
}

/// A cache that is bounded by bytes.
pub type Bounded<K, V> = Cache<K, V, ByBytes>;

/// A cache with its share of `all` bytes.
pub fn bounded<K, V>(name: CacheName, all: usize) -> Bounded<K, V>
where
    K: Eq + Hash + Clone,
    V: Weigh + Clone,
{
    let shards = match name {
        CacheName::Paths => Some(PATH_SHARDS),
        CacheName::Console | CacheName::Gone | CacheName::Histories => Some(LARGE_SHARDS),
        _ => None,
    };
    of_bytes(share(name, all) as u64, shards)
}

/// A cache that takes `share` bytes. An eighth is reserved for the keys of dropped values.
pub fn of_bytes<K, V>(share: u64, shards: Option<usize>) -> Bounded<K, V>
where
    K: Eq + Hash + Clone,
    V: Weigh + Clone,
{
    let room = share - share / 8;
    let mut options = OptionsBuilder::new();
    if let Some(shards) = shards {
        options.shards(shards);
    }
    let options = options
        .estimated_items_capacity(
            usize::try_from(share / TYPICAL)
                .unwrap_or(usize::MAX)
                .max(64),
        )
        .weight_capacity(room)
        .build();
    let hasher = DefaultHashBuilder::default();
    match options {
        Ok(options) => Cache::with_options(options, ByBytes, hasher, DefaultLifecycle::default()),
        // Building fails only if a size is missing, and both are given.
        Err(_) => Cache::with_weighter(64, room, ByBytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_the_whole_and_no_more() {
        for all in [LEAST, MEMORY] {
            let shares = CacheName::ALL.iter().map(|cache| share(*cache, all));
            assert_eq!(shares.sum::<usize>(), all);
        }
    }

    /// Whatever is put in, large, small or too large: the weight stays within the share.
    #[test]
    fn a_cache_keeps_to_its_share() {
        #[derive(Clone)]
        struct AsSaid(u64);
        impl Weigh for AsSaid {
            fn owned(&self) -> usize {
                self.0 as usize
            }
        }
        for name in CacheName::ALL {
            let cache = bounded(name, LEAST);
            let share = share(name, LEAST) as u64;
            for key in 0..20_000 {
                let weight = [100, 3_000, 20_000, share * 2][key as usize % 4];
                cache.insert(key, AsSaid(weight));
                assert!(cache.weight() <= share, "{name:?}");
            }
            // The smallest shares hold a handful of the large ones, and which stay is chance.
            assert!(cache.weight() > share / 4, "{name:?}: {}", cache.weight());
        }
    }
}
