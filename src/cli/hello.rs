//! What a person at a terminal is told at the start: where to point an agent, and what to look at.
//! Owns the words. Never speaks where stderr is a file or a pipe, or holds JSON.

use std::io::IsTerminal as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::agents::{Agent, PROXY};
use super::logs::say;
use crate::config::{LogFormat, LogSection};

/// Whether a person reads what is said.
#[must_use]
pub fn is_heard(log: &LogSection) -> bool {
    log.format == LogFormat::Text && std::io::stderr().is_terminal()
}

/// Says where a server is, and its store.
pub fn serving(listen: SocketAddr, admin: SocketAddr, store: &str) {
    say(&lines(listen, admin, store));
}

fn lines(listen: SocketAddr, admin: SocketAddr, store: &str) -> String {
    let base = url(listen);
    let proxy = if base == PROXY {
        String::new()
    } else {
        format!(" --proxy {base}")
    };
    let agents: Vec<_> = Agent::ALL.iter().map(|agent| agent.program()).collect();
    format!(
        "agents:   plimsoll setup AGENT{proxy}    ({})\n          or set their base URL to {base}/v1 (Anthropic's clients: {base})\n\
         metrics:  {}/metrics\nstore:    {store}\nstop:     ctrl-c",
        agents.join(", "),
        url(admin)
    )
}

/// Says where an agent's requests go.
pub fn running(program: &str, base: &str, upstream: &str, admin: SocketAddr) {
    let admin = url(admin);
    say(&format!(
        "plimsoll: {program} talks to {base}, which sends to {upstream}; metrics: {admin}/metrics"
    ));
}

/// The URL of an address for this machine.
fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_this_machine_can_use() {
        let at = |text: &str| text.parse().unwrap();
        let said = lines(at("127.0.0.1:8787"), at("0.0.0.0:9187"), "memory");
        assert!(said.contains("plimsoll setup AGENT  "), "{said}");
        assert!(said.contains("http://127.0.0.1:9187/metrics"), "{said}");
        let said = lines(at("[::]:1"), at("127.0.0.1:2"), "/s");
        assert!(said.contains("--proxy http://[::1]:1 "), "{said}");
    }
}
