"""Starts what the tests talk to: a scripted provider and the proxy, each a process of its own.

`pytest --direct` leaves the proxy out and lets the clients talk to the provider: what fails then is
the fault of the tests. Tests that are about the proxy are skipped in that case.
"""

import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
START_DEADLINE = 30.0
STOP_DEADLINE = 40.0


def pytest_addoption(parser):
    parser.addoption("--direct", action="store_true", help="leave the proxy out")


@dataclass(frozen=True)
class Stand:
    """A provider, and what clients use as their base URL to reach it."""

    base_url: str
    provider_url: str
    admin_url: str | None
    # Kills the proxy and starts it again, with the same files and addresses.
    crash: Callable | None = None

    @property
    def managed(self):
        return self.admin_url is not None

    def requests(self):
        """What the provider was sent, oldest first."""
        return json.loads(get(self.provider_url.removesuffix("/v1") + "/__requests"))

    def metrics(self):
        return get(f"{self.admin_url}/metrics")


def get(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


# Guidance from the first request; what comes of late guidance is told by tests of its own.
PUBLISHED = {"PLIMSOLL__DELIMITER__GUIDE_AT": "0"}
# What a slow disk does is judged elsewhere.
PATIENT = {"PLIMSOLL__STORE__WAIT": "30s", "PLIMSOLL__STORE__READ_WAIT": "30s"}


def free_ports(count):
    """Held until all are known, or one might be given twice. Below the ports that a system gives to
    connections, or a client of another test might take one before the proxy does."""
    listeners = []
    while len(listeners) < count:
        try:
            listeners.append(socket.create_server(("127.0.0.1", random.randrange(20_000, 32_000))))
        except OSError:
            continue
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def binary():
    path = Path(os.environ.get("PLIMSOLL_BIN", ROOT / "target/debug/plimsoll"))
    if not path.exists():
        pytest.exit(f"{path} is missing: run `cargo build` first", returncode=2)
    return path


def await_ready(process, url, log):
    deadline = time.monotonic() + START_DEADLINE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"the proxy ended with {process.returncode}:\n{log.read_text()}")
        try:
            return get(f"{url}/readyz")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
    pytest.fail(f"the proxy was not ready in {START_DEADLINE:.0f} s:\n{log.read_text()}")


def stop(process):
    process.terminate()
    try:
        return process.wait(STOP_DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


@pytest.fixture
def stand(request, tmp_path):
    """A function that starts a provider with a script, and the proxy before it unless the client is
    to reach it directly."""
    started = []

    def play(script, flags):
        provider = subprocess.Popen(
            [sys.executable, HERE / "fake_provider.py", "--script", script, *flags],
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(provider)
        return provider.stdout.readline().strip()

    def start(script, *flags, provider_flags=(), direct=False, env=PUBLISHED, upstream=None):
        """The provider is one of the test's own where it has an `upstream`."""
        provider_url = upstream or play(script, provider_flags)
        if direct or request.config.getoption("--direct"):
            return Stand(provider_url, provider_url, None)
        listen, admin = free_ports(2)
        log = tmp_path / "proxy.log"
        command = [binary(), "serve"]
        command += ["--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}"]
        command += ["--upstream", provider_url, "--data", tmp_path / "data", *flags]
        admin_url = f"http://127.0.0.1:{admin}"

        def launch():
            with log.open("a") as out:
                # Run where no config file of the repository is picked up.
                own = {**os.environ, **PATIENT, **env}
                proxy = subprocess.Popen(command, stdout=out, stderr=out, cwd=tmp_path, env=own)
            started.append(proxy)
            await_ready(proxy, admin_url, log)

        def crash():
            proxy = started.pop()
            proxy.kill()
            proxy.wait()
            launch()

        request.node.proxy_log = log
        launch()
        return Stand(f"http://127.0.0.1:{listen}/v1", provider_url, admin_url, crash)

    yield start
    for process in reversed(started):
        code = stop(process)
        if process.args[0] != sys.executable:
            assert code == 0, f"the proxy did not end cleanly on SIGTERM: {code}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """What the proxy wrote stands in the report of a test that failed."""
    outcome = yield
    report = outcome.get_result()
    log = getattr(item, "proxy_log", None)
    if report.failed and log and log.exists():
        report.sections.append(("the proxy's output", log.read_text()[-8_000:]))
