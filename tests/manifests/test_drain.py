"""The engine's preStop hook against a server with vLLM's metrics."""

import subprocess
import sys
import threading
import time
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


FORGETFUL = """import socket
found = socket.getaddrinfo
def once(host, *rest, **more):
    if host == "leader.example":
        if hasattr(socket, "asked"):
            raise socket.gaierror(socket.EAI_NONAME, "gone with its Service")
        socket.asked = True
        host = "127.0.0.1"
    return found(host, *rest, **more)
socket.getaddrinfo = once
"""


def test_a_worker_waits_for_a_leader_whose_name_is_gone() -> None:
    """The Service of a group is collected as soon as its leader's deletion begins; the leader still streams."""
    stream = threading.Event()
    asked = threading.Semaphore(0)

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(METRICS.format(running=0 if stream.is_set() else 1, waiting=0).encode())
            asked.release()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = drain.worker_hook(f"http://leader.example:{server.server_address[1]}/metrics", 300)
        command[2:4] = [FORGETFUL + command[2], "0"]
        hook = subprocess.Popen([sys.executable, *command[1:]])
        try:
            for _ in range(3):
                assert asked.acquire(timeout=30), "it ended while its leader had a request"
            stream.set()
            assert hook.wait(timeout=30) == 0
        finally:
            hook.kill()
            hook.wait()
            server.shutdown()


def test_a_worker_does_not_wait_for_a_leader_that_is_out_of_reach() -> None:
    """A leader lost with its node: packets to it go nowhere, and so would the worker's GPUs until the deadline."""
    command = drain.worker_hook("http://leader.example:8000/metrics", 300)
    assert command[6] == str(drain.LOST_SECONDS)
    assert int(command[4]) > 5 * drain.LOST_SECONDS
    nowhere = FORGETFUL + (
        "import errno\n"
        "def lost(*_, **__):\n"
        '    raise OSError(errno.EHOSTUNREACH, "no route to host")\n'
        "socket.create_connection = lost\n"
    )
    command[2:4] = [nowhere + command[2], "0"]
    command[6] = "2"
    started = time.monotonic()
    assert subprocess.run([sys.executable, *command[1:]], timeout=60, check=False).returncode == 0
    assert time.monotonic() - started >= 2
    # The engine's own hook, on the same machine, goes on asking.
    assert drain.engine_hook("url", 300)[6] == "300"


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
