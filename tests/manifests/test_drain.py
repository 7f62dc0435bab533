"""The engine's preStop hook against a server with vLLM's metrics."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from firsttoken.manifests import drain
from manifests.real_envoy import free_ports, poll

METRICS = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m{{x}}"}} {running}.0
vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}.0
vllm:num_requests_waiting_by_reason{{engine="0",model_name="m",reason="capacity"}} 9.0
"""


def _hook(port: int) -> subprocess.Popen[bytes]:
    _, *arguments = drain.engine_hook(f"http://127.0.0.1:{port}/metrics", 300)
    arguments[2] = "0"  # nothing to settle here
    return subprocess.Popen([sys.executable, *arguments])


def test_hook_waits_for_running_and_waiting_requests() -> None:
    load = {"running": 1, "waiting": 0}
    asked = threading.Semaphore(0)

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = METRICS.format(**load).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)
            asked.release()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hook = _hook(server.server_address[1])
        try:
            assert asked.acquire(timeout=30)
            load.update(running=0, waiting=1)
            assert asked.acquire(timeout=30)
            assert asked.acquire(timeout=30), "it ended while a request was waiting"
            assert hook.poll() is None
            load.update(waiting=0)
            assert hook.wait(timeout=30) == 0
        finally:
            hook.kill()
            hook.wait()
            server.shutdown()


def test_hook_ends_at_once_when_the_engine_is_gone() -> None:
    hook = _hook(free_ports(1)[0])
    try:
        poll("the hook ends", lambda: hook.poll() == 0)
    finally:
        hook.kill()
        hook.wait()


def test_deadline_leaves_time_before_the_grace_period_ends() -> None:
    for grace in (30, 60, 300, 3600):
        settle, deadline, linger = (int(a) for a in drain.engine_hook("url", grace, 0)[3:6])
        assert settle + linger <= grace
        assert deadline + linger < grace
