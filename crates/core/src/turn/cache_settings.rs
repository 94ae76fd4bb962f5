//! What an operator sets for the provider's cache. Owns the defaults; never decides what a cache holds.

/// What is done for the provider's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheSettings {
    /// Breakpoints that the proxy sets beside the client's.
    pub breakpoints: SetBreakpoints,
    /// When a pass happens below the ceiling, where the provider caches nothing.
    pub none: Uncached,
    /// When the provider is asked why its cache missed.
    pub diagnose: Diagnose,
}

/// When the provider is asked why its cache missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Diagnose {
    /// Never.
    #[default]
    Off,
    /// For some turns after one that missed, where the upstream is a vendor that answers.
    AfterMiss,
}

/// When a pass happens below the ceiling, where the provider caches nothing and every pass is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Uncached {
    /// As elsewhere: after an hour without a request.
    #[default]
    Wait,
    /// Whenever the view is above the floor.
    Pass,
}

/// Where the proxy sets breakpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetBreakpoints {
    /// If the model's cache matches only at breakpoints and the client leaves room for some.
    #[default]
    Auto,
    /// Nowhere.
    Off,
}
