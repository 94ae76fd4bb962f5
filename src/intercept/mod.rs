//! Interception (in work).

pub mod delimiter;
