//! Clients that bring no tools, that write their calls as text, or that let the provider run a shell:
//! their sessions are held under the ceiling like any other, nothing of the user's goes, and nothing
//! is offered that they did not ask for.

use serde_json::{Value, json};

use super::support::{Lenient, Proxy, Seen, answered, client, response_events, soon};

const TURNS: usize = 36;

/// Who talks with the upstream, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Questions and answers alone.
    Talk,
    /// Calls and results stand in the history, but no tools in the request.
    Calls,
    /// Calls are text, and results come as user messages.
    Texts,
    /// The same of smolagents' code agent, which nobody has named.
    Smolagents,
    /// The same of mini-swe-agent before version 2.
    MiniSweAgent,
    /// A shell that the provider knows and a search that it runs, beside a function, in Responses.
    Shell,
}

/// What is long, and different each time.
fn long(number: usize) -> String {
    let lines = (0..45).map(|line| format!("{number}.{line}: {}", number * 7_919 + line));
    lines.collect::<Vec<_>>().join("\n")
}

/// What the user says in a turn of talk.
fn question(number: usize) -> String {
    format!("question {number}: and what of the next one?")
}

/// Whether an answer ends a task, so that the user says what is next.
const fn ends_task(turn: usize) -> bool {
    turn % 12 == 7
}

/// What the user says then.
fn task(turn: usize) -> String {
    format!("well done; now all behind {turn}")
}

/// What a user says to a known agent: behind an answer that ends a task, and once instead of a result.
fn remark(turn: usize) -> Option<String> {
    let begins = [
        "Observation: the run before was better, see",
        "Observation:\nno, the other file of",
        "Error:\nthat is not what I meant with",
        "<returncode>1</returncode> is what I get in",
        "The last command <command>ls</command> was wrong in",
    ];
    let at = turn / 12 + if ends_task(turn) { 0 } else { 2 };
    let says = ends_task(turn) || turn % 12 == 3;
    says.then(|| format!("{} {turn}", begins[at % begins.len()]))
}

impl Kind {
    /// What the provider itself did can't be edited, and what stands beside it is shortened only.
    fn budget(self) -> usize {
        match self {
            Self::Shell => 8_000,
            Self::Talk | Self::Calls | Self::Texts | Self::Smolagents | Self::MiniSweAgent => 4_000,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Shell => "/v1/responses",
            Self::Talk | Self::Calls | Self::Texts | Self::Smolagents | Self::MiniSweAgent => {
                "/v1/chat/completions"
            }
        }
    }

    /// The messages before the first answer.
    fn begin(self) -> Vec<Value> {
        let user = |text: &str| json!({"role": "user", "content": text});
        match self {
            Self::Talk => vec![user(&question(0))],
            Self::Calls | Self::Shell => vec![user("run them all")],
            Self::Texts => vec![
                json!({"role": "system", "content": "Write one command each time."}),
                user("run them all"),
            ],
            Self::Smolagents => vec![
                json!({"role": "system", "content": "You are an expert assistant who can solve any task using \
                    code blobs. You will be given a task to solve as best you can.\nTo do so, write code."}),
                user("New task:\nrun them all"),
            ],
            Self::MiniSweAgent => vec![
                json!({"role": "system", "content": "You are a helpful assistant.\nYour response must contain \
                    exactly ONE bash code block with ONE command (or commands connected with && or ||)."}),
                user("run them all"),
            ],
        }
    }

    fn body(self, history: &[Value], stream: bool) -> Value {
        match self {
            Self::Shell => json!({"model": "m", "input": history, "store": false, "stream": stream,
                "tools": [{"type": "shell"}, {"type": "function", "name": "read",
                    "parameters": {"type": "object"}}]}),
            Self::Talk | Self::Calls | Self::Texts | Self::Smolagents | Self::MiniSweAgent => {
                json!({"model": "m", "messages": history, "stream": stream})
            }
        }
    }

    /// What the model says, as a chat message or as items.
    fn says(self, turn: usize) -> Value {
        let content = match self {
            Self::Talk => long(turn),
            Self::Calls => String::new(),
            Self::Texts | Self::Smolagents | Self::MiniSweAgent if ends_task(turn) => {
                format!("All is done so far: {turn}. {}", long(turn))
            }
            Self::Texts => format!("Thought: on to {turn}.\nCode:\nrun({turn})"),
            // The newest form, that of version 1, and code in a fence alone.
            Self::Smolagents => match turn % 3 {
                0 => format!(
                    "Thought: on to {turn}.\n<code>\nrun({turn})\n</code>Calling tools:\n[{{'id': 'call_{turn}', \
                     'type': 'function', 'function': {{'name': 'python_interpreter', 'arguments': 'run({turn})'}}}}]"
                ),
                1 => format!("Thought: on to {turn}.\nCode:\n```py\nrun({turn})\n```<end_code>"),
                _ => format!("Thought: on to {turn}.\n```python\nrun({turn})\n```"),
            },
            Self::MiniSweAgent => format!("THOUGHT: on to {turn}.\n\n```bash\nrun {turn}\n```"),
            Self::Shell => {
                return json!([
                    {"type": "web_search_call", "id": format!("ws_{turn}"), "status": "completed",
                        "action": {"type": "search", "query": format!("what is {turn}")}},
                    {"type": "shell_call", "id": format!("sh_{turn}"), "call_id": format!("s{turn}"),
                        "status": "completed", "action": {"commands": [format!("run {turn}")]}},
                    {"type": "function_call", "id": format!("fc_{turn}"), "call_id": format!("f{turn}"),
                        "status": "completed", "name": "read", "arguments": format!("{{\"n\":{turn}}}")},
                ]);
            }
        };
        let mut message = json!({"role": "assistant", "content": content});
        if self == Self::Calls {
            message["tool_calls"] = json!([{"index": 0, "id": format!("call_{turn}"),
                "type": "function", "function": {"name": "bash",
                    "arguments": json!({"c": format!("run {turn}")}).to_string()}}]);
        }
        message
    }

    /// A result of a known agent.
    fn result(self, turn: usize) -> String {
        let text = long(turn);
        match (self, turn % 5) {
            (Self::Smolagents, 4) => format!(
                "Observation:\nExecution logs:\n{text}\nCall id: call_{turn}\nError:\nno such name\nNow let's \
                 retry: take care not to repeat previous errors! If you have retried several times, try a \
                 completely different approach.\n"
            ),
            (Self::Smolagents, _) => format!(
                "Observation:\nExecution logs:\n{text}\nLast output from code snippet:\nNone"
            ),
            (_, 4) => format!(
                "The last command <command>run {turn}</command> timed out and has been killed.\nThe output of the \
                 command was:\n <output>\n{text}\n</output>\nPlease try another command and make sure to avoid \
                 those requiring interactive input."
            ),
            (_, 3) => format!(
                "<returncode>1</returncode>\n<warning>\nThe output of your last command was too long.\n</warning>\
                 <output_head>\n{text}\n</output_head>\n<elided_chars>\n9 characters elided\n</elided_chars>\n\
                 <output_tail>\nend\n</output_tail>"
            ),
            (_, _) => format!("<returncode>0</returncode>\n<output>\n{text}\n</output>"),
        }
    }

    /// What the client adds behind it.
    fn adds(self, turn: usize) -> Vec<Value> {
        match self {
            Self::Talk => vec![json!({"role": "user", "content": question(turn + 1)})],
            Self::Calls => {
                let id = format!("call_{turn}");
                vec![json!({"role": "tool", "tool_call_id": id, "content": long(turn)})]
            }
            Self::Texts => {
                let text = match ends_task(turn) {
                    true => task(turn),
                    false => format!("Observation:\n{}", long(turn)),
                };
                vec![json!({"role": "user", "content": text})]
            }
            Self::Smolagents | Self::MiniSweAgent => {
                let text = remark(turn).unwrap_or_else(|| self.result(turn));
                vec![json!({"role": "user", "content": text})]
            }
            Self::Shell => vec![
                json!({"type": "shell_call_output", "call_id": format!("s{turn}"), "output": [
                    {"stdout": long(turn), "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}),
                json!({"type": "function_call_output", "call_id": format!("f{turn}"),
                    "output": long(turn + TURNS)}),
            ],
        }
    }
}

/// The upstream's answer as it is sent.
fn answer(kind: Kind, turn: usize, stream: bool) -> String {
    let said = kind.says(turn);
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18});
    let head = json!({"id": format!("c{turn}"), "created": 1, "model": "m"});
    let chunk = |delta: &Value, finish: Value| {
        let mut chunk = head.clone();
        chunk["object"] = "chat.completion.chunk".into();
        chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        format!("data: {chunk}\n\n")
    };
    if kind == Kind::Shell {
        let whole = json!({"id": format!("resp_{turn}"), "object": "response", "status": "completed",
            "model": "m", "output": said, "usage": {"input_tokens": 9, "output_tokens": 9,
                "total_tokens": 18}});
        return match stream {
            false => whole.to_string(),
            true => response_events(&whole),
        };
    }
    if stream {
        let frames = [
            chunk(&said, Value::Null),
            chunk(&json!({}), "stop".into()),
            "data: [DONE]\n\n".to_owned(),
        ];
        return frames.concat();
    }
    let mut whole = head.clone();
    whole["object"] = "chat.completion".into();
    whole["usage"] = usage;
    whole["choices"] = json!([{"index": 0, "message": said, "finish_reason": "stop"}]);
    whole.to_string()
}

/// Plays a session: what the upstream was sent each time, and what the proxy said of it.
async fn play(kind: Kind, stream: bool) -> (Vec<Value>, Vec<(String, u64)>) {
    let upstream = Lenient::start(move |turn, _| answered(200, answer(kind, turn, stream))).await;
    let proxy = Proxy::before(upstream.addr).await;
    let mut history = kind.begin();
    let mut told = Vec::new();
    for turn in 0..TURNS {
        let mut sent = client()
            .post(proxy.url(kind.path()))
            .bearer_auth("k")
            .header("x-plimsoll-budget", kind.budget());
        if kind == Kind::Texts {
            sent = sent.header("x-plimsoll-profile", "smolagents");
        }
        let sent = sent.body(kind.body(&history, stream).to_string());
        let response = soon(sent.send()).await.unwrap();
        assert_eq!(response.status(), 200, "{kind:?} turn {turn}");
        let header = |name: &str| {
            let value = response.headers().get(name);
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        let evicted = header("x-plimsoll-evicted-tokens");
        let evicted = evicted.and_then(|tokens| tokens.parse().ok());
        told.push((
            header("x-plimsoll-budget").unwrap_or_default(),
            evicted.unwrap_or_default(),
        ));
        let text = soon(response.text()).await.unwrap();
        let said = kind.says(turn);
        assert!(
            !text.contains("delimiter") && text.contains("\"m\""),
            "{kind:?} turn {turn}: {text}"
        );
        match said {
            Value::Array(items) => history.extend(items),
            said => history.push(said),
        }
        history.extend(kind.adds(turn));
    }
    (upstream.seen().iter().map(Seen::value).collect(), told)
}

/// Holds a session to what all of them must keep.
async fn holds(kind: Kind, stream: bool) -> Vec<Value> {
    let (seen, told) = play(kind, stream).await;
    assert_eq!(seen.len(), TURNS);
    let over: Vec<usize> = (0..TURNS).filter(|turn| told[*turn].0 != "met").collect();
    assert!(over.is_empty(), "{kind:?}: over the budget in {over:?}");
    let evicted = told.iter().filter(|(_, tokens)| *tokens > 0).count();
    assert!(evicted > TURNS / 3, "{kind:?}: evicted in {evicted} turns");
    // The lines are numbers: no view under the budget has as many bytes.
    let longest = seen.iter().map(|body| body.to_string().len()).max();
    assert!(
        longest < Some(kind.budget() * 5),
        "{kind:?}: {longest:?} bytes"
    );
    seen
}

fn texts<'a>(body: &'a Value, role: &str) -> Vec<&'a str> {
    let messages = body["messages"].as_array().unwrap().iter();
    let of = messages.filter(|message| message["role"] == role);
    of.filter_map(|message| message["content"].as_str())
        .collect()
}

#[tokio::test]
async fn a_chat_without_tools_is_held_and_keeps_what_the_user_said() {
    for stream in [false, true] {
        let seen = holds(Kind::Talk, stream).await;
        for (turn, body) in seen.iter().enumerate() {
            assert_eq!(body.get("tools"), None);
            let said: Vec<String> = (0..=turn).map(question).collect();
            assert_eq!(texts(body, "user"), said, "turn {turn}");
            // Many providers take the two in turns only.
            assert_eq!(texts(body, "assistant").len(), turn);
        }
    }
}

#[tokio::test]
async fn calls_of_a_history_without_tools_are_held() {
    for stream in [false, true] {
        let seen = holds(Kind::Calls, stream).await;
        assert!(seen.iter().all(|body| body.get("tools").is_none()));
        assert!(
            seen.iter()
                .all(|body| texts(body, "user") == ["run them all"])
        );
    }
}

#[tokio::test]
async fn results_that_come_as_user_messages_are_held_by_their_profile() {
    for stream in [false, true] {
        let seen = holds(Kind::Texts, stream).await;
        for (turn, body) in seen.iter().enumerate() {
            let said = texts(body, "user");
            let observed = |text: &&&str| text.starts_with("Observation:");
            let own: Vec<&str> = said
                .iter()
                .filter(|text| !observed(text))
                .copied()
                .collect();
            let tasks = (0..turn).filter(|turn| ends_task(*turn)).map(task);
            let tasks: Vec<String> = std::iter::once("run them all".to_owned())
                .chain(tasks)
                .collect();
            assert_eq!(own, tasks, "turn {turn}");
            // Many providers take the two in turns only, and refuse two tasks without an answer.
            let roles = body["messages"].as_array().unwrap().iter();
            let roles: Vec<_> = roles.map(|message| &message["role"]).collect();
            let apart = roles.windows(2).all(|pair| pair[0] != pair[1]);
            assert!(apart, "turn {turn}: {roles:?}");
        }
    }
}

#[tokio::test]
async fn what_a_user_says_to_an_agent_that_calls_by_text_stays_however_it_begins() {
    for kind in [Kind::Smolagents, Kind::MiniSweAgent] {
        for stream in [false, true] {
            let seen = holds(kind, stream).await;
            for (turn, body) in seen.iter().enumerate() {
                let said = texts(body, "user");
                for remark in (0..turn).filter_map(remark) {
                    assert!(
                        said.contains(&remark.as_str()),
                        "{kind:?} {stream} {turn}: {remark:?} is gone"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn what_a_providers_own_shell_said_is_held() {
    for stream in [false, true] {
        let seen = holds(Kind::Shell, stream).await;
        for (turn, body) in seen.iter().enumerate() {
            let items = body["input"].as_array().unwrap();
            let calls = |kind: &str| items.iter().filter(|item| item["type"] == kind).count();
            assert_eq!(
                calls("web_search_call"),
                turn,
                "only its provider may edit it"
            );
            assert_eq!(calls("shell_call"), calls("shell_call_output"));
            assert_eq!(calls("function_call"), calls("function_call_output"));
        }
    }
}
