"""How pods finish what they began: scripts that run as preStop hooks, before SIGTERM ends the process.

A terminating pod is taken out of its Service at once, but callers learn of it with their next DNS answer; requests
that are under way need their time. The scripts wait for both, with a deadline below the pod's grace period.
"""

SETTLE_SECONDS = 10  # until Envoy (DNS every 2 s, DNS caches of 5 s) and vllm-router (pod watch) send nothing new
GRACE_SECONDS = 300  # streams of minutes are normal; the hook ends as soon as nothing runs
SHUTDOWN_SECONDS = 20  # kept back for the process itself after the hook

LOST_SECONDS = 30  # without a connection to its leader a worker takes it for lost, as with its node

# Arguments: seconds to settle, deadline, seconds to linger after the last request, seconds without a connection after
# which the engine is lost; then the metrics URL, in which variables are the container's own.
_ENGINE = r"""
import http.client, os, re, socket, sys, time, urllib.error, urllib.parse, urllib.request
settle, deadline, linger, lost = (float(a) for a in sys.argv[1:5])
begin = time.monotonic()
line = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{.*\})? (\S+)$", re.M)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def resolved(url):
    # Once, and at once: the Service of a group goes with the first deletion, and the leader streams on.
    while True:
        try:
            host = socket.getaddrinfo(url.hostname, url.port, type=socket.SOCK_STREAM)[0][4][0]
            return url._replace(netloc=f"[{host}]:{url.port}" if ":" in host else f"{host}:{url.port}").geturl()
        except socket.gaierror:
            if time.monotonic() - begin >= settle:
                sys.exit(0)
            time.sleep(1)

def active():
    global reached
    try:
        with opener.open(url, timeout=5) as answer:
            running = sum(float(n) for n in line.findall(answer.read().decode()))
    except urllib.error.HTTPError:
        running = 1
    except urllib.error.URLError as error:
        gone = isinstance(error.reason, ConnectionRefusedError) or time.monotonic() - reached >= lost
        return 0 if gone else 1
    except (OSError, http.client.HTTPException):
        running = 1
    reached = time.monotonic()
    return running

url = resolved(urllib.parse.urlsplit(os.path.expandvars(sys.argv[5])))
time.sleep(max(0, begin + settle - time.monotonic()))
reached = time.monotonic()
while time.monotonic() < begin + deadline and active():
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
    return _hook(metrics_url, grace_seconds, linger_seconds, grace_seconds)


def worker_hook(metrics_url: str, grace_seconds: int) -> list[str]:
    """The same for a pod that computes for another one, its leader: it ends when the leader has no request left.

    `metrics_url`: the leader's; variables in it are the container's own. The leader's address is looked up once, when
    the hook starts: its name goes before it does. A leader that never had one, or is out of reach for LOST_SECONDS, is
    gone.
    """
    return _hook(metrics_url, grace_seconds, 0, LOST_SECONDS)


def _hook(metrics_url: str, grace_seconds: int, linger_seconds: int, lost_seconds: int) -> list[str]:
    settle = min(SETTLE_SECONDS, grace_seconds // 4)
    deadline = max(grace_seconds - SHUTDOWN_SECONDS - linger_seconds, settle)
    arguments = (settle, deadline, linger_seconds, lost_seconds)
    return ["python3", "-c", _ENGINE, *map(str, arguments), metrics_url]


def envoy_hook(script: str, admin_port: int) -> list[str]:
    """Command of Envoy's preStop hook; `script` is the path of ENVOY_SCRIPT in the container."""
    return ["bash", script, str(admin_port), str(SETTLE_SECONDS), str(GRACE_SECONDS - SHUTDOWN_SECONDS)]
