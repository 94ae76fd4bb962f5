//! The proxy from outside: real sockets, a real upstream in the test's own process, and the real
//! binary. One binary of modules, so that it links once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets what it does not expect has failed; helpers are no exception"
)]

mod agent;
mod agents;
mod asides;
mod bad_calls;
mod bad_input;
mod breakpoints;
mod budgets;
mod cache_lifetimes;
mod cache_misses;
mod call_ids;
mod child;
mod children;
mod coded;
mod console;
mod console_asks;
mod console_evict;
mod console_figures;
mod console_load;
mod console_recall;
mod corners;
mod counts;
mod cuts;
mod dashboard;
mod declared;
mod demo;
mod deployed;
mod descriptors;
mod diagnosis;
mod dialects;
mod explicit;
mod export;
mod fail_open;
mod failures;
mod faults;
mod forks;
mod gone;
mod hidden_calls;
mod hop_errors;
mod hops;
mod hour;
mod kept;
mod kept_live;
mod ladder;
mod later_hops;
mod learning;
mod ledger;
mod limits;
mod listing;
mod lone;
mod long_answers;
mod many_calls;
mod memory;
mod metered;
mod names;
mod observe;
mod one_account;
mod one_text;
mod openapi;
mod origins;
mod pass;
mod pins;
mod policies;
mod process;
mod profiles;
mod provider_habits;
mod providers;
mod recall;
mod references;
mod renamed_ids;
mod replay;
mod reports;
mod resend;
mod room;
mod rules;
mod run;
mod series;
mod setup;
mod shared_store;
mod silences;
mod stalls;
mod stderr;
mod stores;
mod streams;
mod support;
mod tenants;
mod texts;
mod tidy;
mod toolless;
mod turns;
mod typed;
mod unedited;
mod unlearned;
mod unpacking;
mod unread;
mod vendor;
mod wholes;
mod windows;
mod wire;
