//! A request's headers while its answer lasts. Owns their form: a list, because a map has room for more
//! and an answer may last an hour. Never reads one.

use http::{HeaderMap, HeaderName, HeaderValue};

/// All headers of a request, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptHeaders(Box<[(HeaderName, HeaderValue)]>);

impl From<HeaderMap> for KeptHeaders {
    fn from(headers: HeaderMap) -> Self {
        // A map gives the name of several values once, with the first of them.
        let mut name = None;
        let all = headers.into_iter().filter_map(|(next, value)| {
            name = next.or_else(|| name.take());
            Some((name.clone()?, value))
        });
        Self(all.collect())
    }
}

impl KeptHeaders {
    /// The headers as they came.
    #[must_use]
    pub fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.0.len());
        for (name, value) in &self.0 {
            map.append(name.clone(), value.clone());
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_that_comes_back_is_the_one_that_was_kept() {
        let mut map = HeaderMap::new();
        let mut secret = HeaderValue::from_static("Bearer k");
        secret.set_sensitive(true);
        map.append("accept", HeaderValue::from_static("a"));
        map.append("authorization", secret);
        map.append("x-odd", HeaderValue::from_static("one"));
        map.append("accept", HeaderValue::from_static("b"));
        map.append("x-odd", HeaderValue::from_static("two"));
        let back = KeptHeaders::from(map.clone()).to_map();
        assert_eq!(back, map);
        let order = |map: &HeaderMap| -> Vec<(String, HeaderValue, bool)> {
            let all = map.iter();
            all.map(|(name, value)| (name.to_string(), value.clone(), value.is_sensitive()))
                .collect()
        };
        assert_eq!(order(&back), order(&map));
        assert_eq!(KeptHeaders::from(HeaderMap::new()).to_map().len(), 0);
    }
}
