//! The buckets of all histograms. Never observes anything.

/// 50 µs to 1 s, for the proxy's and the store's own time.
pub(super) const OVERHEAD_BUCKETS: &[f64] = &[
    50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0,
];
/// 5 ms to 900 s, for whole answers of a model.
pub(super) const UPSTREAM_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    900.0,
];
/// 1 ms to 300 s, for the first byte of an answer.
pub(super) const FIRST_TOKEN_BUCKETS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0,
];
/// Powers of four from 1 to 4,194,304.
pub(super) const TOKEN_BUCKETS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
];
/// Shares, densest where a good cache lies.
pub(super) const SHARE_BUCKETS: &[f64] = &[
    0.0, 0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 1.0,
];
/// Reported over estimated tokens, densest in the range to which a session's ratio is clamped.
pub(super) const RATIO_BUCKETS: &[f64] = &[
    0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0,
];
/// Sent tokens over the ceiling, densest around 1.
pub(super) const CEILING_BUCKETS: &[f64] = &[
    0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 5.0,
];
/// Hidden hops per turn, up to the default limit.
pub(super) const HOP_BUCKETS: &[f64] = &[0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0];
