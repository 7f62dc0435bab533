"""How pods finish what they began: scripts that run as preStop hooks, before SIGTERM ends the process.

A terminating pod is taken out of its Service at once, but callers learn of it with their next DNS answer; requests
that are under way need their time. The scripts wait for both, with a deadline below the pod's grace period.
"""

SETTLE_SECONDS = 10  # until Envoy (DNS every 2 s, DNS caches of 5 s) and vllm-router (pod watch) send nothing new
GRACE_SECONDS = 300  # streams of minutes are normal; the hook ends as soon as nothing runs
SHUTDOWN_SECONDS = 20  # kept back for the process itself after the hook

# Arguments: seconds to settle, deadline, seconds to linger after the last request; then the metrics URL.
_ENGINE = r"""
import re, sys, time, urllib.error, urllib.request
settle, deadline, linger = (float(a) for a in sys.argv[1:4])
end = time.monotonic() + deadline
line = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{.*\})? (\S+)$", re.M)

def active():
    try:
        with urllib.request.urlopen(sys.argv[4], timeout=5) as answer:
            return sum(float(n) for n in line.findall(answer.read().decode()))
    except urllib.error.URLError as error:
        return 0 if isinstance(error.reason, ConnectionRefusedError) else 1
    except OSError:
        return 1

time.sleep(settle)
while time.monotonic() < end and active():
    time.sleep(1)
time.sleep(linger)
""".strip()

# Arguments: admin port, seconds to settle, deadline. Only bash built-ins: Envoy's image has no HTTP client.
ENVOY_SCRIPT = r"""
#!/bin/bash
# Fail readiness and close idle connections, then wait until no response is under way.
admin() {
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
  printf '%s %s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n' "$1" "$2" >&3
  local line
  while read -r line <&3; do echo "${line%$'\r'}"; done
  exec 3>&-
}
port=$1 settle=$2 deadline=$3
admin POST /healthcheck/fail > /dev/null || exit 0
sleep "$settle"
while ((SECONDS < deadline)); do
  active=0
  while read -r name value; do
    [[ $name == http.ingress.downstream_rq_active: ]] && active=$value
  done < <(admin GET '/stats?filter=http.ingress.downstream_rq_active')
  ((active == 0)) && exit 0
  sleep 1
done
""".lstrip()


def engine_hook(metrics_url: str, grace_seconds: int, linger_seconds: int = 0) -> list[str]:
    """Command of the engine's preStop hook.

    `linger_seconds` is for prefill: a finished prompt's KV is still to be fetched by decode, within its lease.
    """
    settle = min(SETTLE_SECONDS, grace_seconds // 4)
    deadline = max(grace_seconds - SHUTDOWN_SECONDS - linger_seconds, settle)
    return ["python3", "-c", _ENGINE, str(settle), str(deadline), str(linger_seconds), metrics_url]


def worker_hook(metrics_url: str, grace_seconds: int) -> list[str]:
    """The same for a pod that computes for another one, its leader: it ends when the leader has no request left.

    `metrics_url`: the leader's; variables in it are the container's own. A leader that has no address any more is gone.
    """
    script = _ENGINE.replace("ConnectionRefusedError", "(ConnectionRefusedError, socket.gaierror)")
    script = f"import os, socket, sys\nsys.argv[4] = os.path.expandvars(sys.argv[4])\n{script}"
    _, _, _, *arguments = engine_hook(metrics_url, grace_seconds)
    return ["python3", "-c", script, *arguments]


def envoy_hook(script: str, admin_port: int) -> list[str]:
    """Command of Envoy's preStop hook; `script` is the path of ENVOY_SCRIPT in the container."""
    return ["bash", script, str(admin_port), str(SETTLE_SECONDS), str(GRACE_SECONDS - SHUTDOWN_SECONDS)]
