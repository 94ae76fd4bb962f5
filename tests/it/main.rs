//! The proxy from outside: real sockets, a real upstream in the test's own process, and the real
//! binary. One binary of modules, so that it links once.

mod faults;
mod limits;
mod pass;
mod process;
mod support;
mod turns;
