//! The provider: the scripted one, in any wire format. Asserts nothing.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use plimsoll_scripted::{Form, Options, Provider, Received, Rules, Script, Verdict};

use super::script::{self, Quirks};
use crate::dialects::Sent;
use crate::metered::counter;

/// A running provider.
pub struct Host {
    pub addr: SocketAddr,
    form: Form,
    provider: Provider,
    fronts: Fronts,
}

/// Of each request whether the hidden tools are offered, and whether they are asked for.
type Fronts = Arc<Mutex<Vec<(bool, bool)>>>;

/// Tokens that the head of a seal looks like, beside the thought that it seals.
const SEAL: usize = 8;

/// How the guidance begins.
const GUIDANCE: &str = "# Context episodes";

impl Host {
    pub async fn start(form: Form, rules: Rules, quirks: Quirks) -> Self {
        let fronts = Fronts::default();
        let seen = Arc::clone(&fronts);
        let script = Script::ask(move |view| {
            let sent = Sent {
                body: view.body.clone(),
                bytes: Vec::new(),
            };
            script::reply(&sent.key(), &asked(&sent, &seen), quirks)
        });
        let options = Options {
            rules,
            count: counter(),
            ..Options::default()
        };
        let provider = Provider::start(script, options).await.unwrap();
        Self {
            addr: provider.address,
            form,
            provider,
            fronts,
        }
    }

    /// What stood in front of the requests, each time that it changed.
    pub fn fronts(&self) -> Vec<(bool, bool)> {
        let mut fronts = self.fronts.lock().unwrap().clone();
        fronts.dedup();
        fronts
    }

    /// The requests so far, with what was made of their thoughts.
    pub fn requests(&self) -> Vec<Received> {
        self.provider.asked(self.form)
    }

    /// The sizes of the requests that were answered, by the provider's own count, from a request on, each with how
    /// far a count may be off that can't look into what is sealed.
    pub fn sizes(&self, from: usize) -> Vec<(usize, usize)> {
        let answered = |request: &Received| request.verdict == Verdict::Accepted;
        let requests = self.requests().into_iter().skip(from);
        let sized = |request: Received| (request.size, SEAL * seals(&request.body));
        requests.filter(answered).map(sized).collect()
    }

    /// Takes the requests away, so that a long session need not be held in memory.
    pub fn take(&self) -> Vec<Received> {
        self.provider.take()
    }

    /// What was refused so far: the model, and the words.
    pub fn refusals(&self) -> Vec<(String, String)> {
        let refused = self.requests().into_iter().filter_map(|request| {
            let model = request.value()["model"].as_str()?.to_owned();
            match request.verdict {
                Verdict::Refused(refusal) => Some((model, refusal.message)),
                Verdict::Accepted | Verdict::Unchecked => None,
            }
        });
        refused.collect()
    }
}

/// How many thoughts of a request can only be told by the length of what seals them.
fn seals(body: &[u8]) -> usize {
    let body = String::from_utf8_lossy(body);
    let marks = [
        "\"encrypted_content\":",
        "\"thinking\":\"\"",
        "\"reasoning.encrypted\"",
    ];
    marks.iter().map(|mark| body.matches(mark).count()).sum()
}

/// The tools that a model uses, which does not use what waits to be asked for. Notes what stood in
/// front.
fn asked(sent: &Sent, fronts: &Fronts) -> Vec<String> {
    let mut tools = sent.tools();
    let guided = sent.body.to_string().contains(GUIDANCE);
    let offered = tools.iter().any(|name| name == "delimiter");
    fronts.lock().unwrap().push((offered, guided));
    tools.retain(|name| guided || name != "delimiter");
    tools
}
