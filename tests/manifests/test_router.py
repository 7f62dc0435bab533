"""The rendered command line in vllm-router itself: it knows every flag, and takes errors as we say it does."""

import http.client
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from firsttoken.manifests import names
from firsttoken.manifests.router import router_args
from firsttoken.planning.types import Plan, Routing
from manifests import cases
from manifests.real_envoy import free_ports, poll

REVISION = "kb-assistant-1a2b3c4d"
APART = Routing("cache_aware", 0.55)
PLANS = {
    "colocated": cases.plan(router=True),
    "disaggregated": cases.disaggregated(),
    "colocated, prefixes of more than all share": replace(cases.plan(router=True), routing=APART),
    "colocated, the smaller load of two": replace(cases.plan(router=True), routing=Routing("power_of_two")),
    "disaggregated, prefixes of more than all share": replace(cases.disaggregated(), routing=APART),
}
BREAKER_OPENS_AFTER = 10  # its default for consecutive failures


def _command() -> str:
    beside = Path(sys.executable).with_name("vllm-router")
    found = str(beside) if beside.exists() else shutil.which("vllm-router")
    assert found, "vllm-router is missing: make install (or: pip install vllm-router==0.1.17)"
    return found


def _local(args: Sequence[str]) -> tuple[list[str], int]:
    """`args` with ports that are free here, and the port it listens on."""
    port, metrics = free_ports(2)
    swap = {f"--port={names.ROUTER_PORT}": f"--port={port}",
            f"--prometheus-port={names.ROUTER_METRICS_PORT}": f"--prometheus-port={metrics}"}  # fmt: skip
    assert set(swap) <= set(args)
    return [swap.get(arg, arg) for arg in args], port


def _status(port: int, method: str, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        body = '{"model": "m", "prompt": "x", "max_tokens": 1}' if method == "POST" else None
        connection.request(method, path, body=body, headers={"content-type": "application/json"})
        return connection.getresponse().status
    except ConnectionError:
        return 0
    finally:
        connection.close()


@contextmanager
def _running(folder: Path, args: Sequence[str]) -> Iterator[int]:
    """The router with `args`, from the moment it answers; yields its port."""
    local, port = _local(args)
    # No kubeconfig and no service account: discovery fails, which it logs, and serves on without engines.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KUBE")} | {"HOME": str(folder)}
    log = folder / "router.log"
    with log.open("wb") as out:
        process = subprocess.Popen([_command(), *local], stdout=out, stderr=subprocess.STDOUT, env=environment)

        def answers() -> bool:
            assert process.poll() is None, f"it ended: {log.read_text()[-600:]}"
            return _status(port, "GET", "/liveness") == 200

        try:
            poll("the router answers", answers)
            yield port
        finally:
            process.kill()
            process.wait(timeout=10)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_router_starts_with_the_rendered_arguments(tmp_path: Path, plan: Plan) -> None:
    with _running(tmp_path, router_args(cases.service(), REVISION, plan)) as port:
        assert _status(port, "GET", "/liveness") == 200, "alive without engines"
        assert _status(port, "GET", "/readiness") == 503, "not ready without engines"


def test_the_policy_of_the_plan_is_rendered() -> None:
    def flags(plan: Plan) -> set[str]:
        return {a for a in router_args(cases.service(), REVISION, plan) if "policy" in a or "threshold" in a} - {
            "--health-failure-threshold=3",
            "--health-success-threshold=1",
        }

    assert flags(PLANS["colocated"]) == {"--policy=cache_aware"}, "as plans of older versions were rendered"
    assert flags(PLANS["colocated, prefixes of more than all share"]) == {
        "--policy=cache_aware",
        "--cache-threshold=0.55",
    }
    assert flags(PLANS["colocated, the smaller load of two"]) == {"--policy=power_of_two"}
    assert flags(PLANS["disaggregated, prefixes of more than all share"]) == {
        "--prefill-policy=cache_aware",
        "--decode-policy=power_of_two",
        "--cache-threshold=0.55",
    }


def test_an_unknown_flag_would_be_noticed() -> None:
    result = subprocess.run([_command(), "--no-such-flag=1"], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert "unrecognized arguments" in result.stderr


class _Failing(http.server.BaseHTTPRequestHandler):
    """An engine that is healthy and answers every prompt with 500."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, b'{"data": [{"id": "m"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self._answer(500, b"{}")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


def test_errors_of_an_engine_do_not_take_it_out(tmp_path: Path) -> None:
    """With its circuit breaker, vllm-router answers 503 by itself after ten errors, whoever caused them."""
    args = router_args(cases.service(), REVISION, PLANS["colocated"])
    found = next(i for i, arg in enumerate(args) if arg == "--selector")
    after = next(i for i in range(found + 1, len(args)) if args[i].startswith("--"))
    kept = [a for a in (*args[:found], *args[after:]) if not a.startswith("--service-discovery")]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Failing) as engine:
        threading.Thread(target=engine.serve_forever, daemon=True).start()
        try:
            with _running(tmp_path, [*kept, f"--worker-urls=http://127.0.0.1:{engine.server_address[1]}"]) as port:
                seen = [_status(port, "POST", "/v1/completions") for _ in range(BREAKER_OPENS_AFTER + 5)]
        finally:
            engine.shutdown()
    assert set(seen) == {500}, seen
