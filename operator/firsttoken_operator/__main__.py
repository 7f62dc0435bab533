"""`python -m firsttoken_operator`: run the operator until it is told to stop."""

import argparse
import asyncio
import contextlib
import logging
import os
import socket
import sys
import threading
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import kopf
from prometheus_client import start_http_server

from firsttoken.manifests.images import Images
from firsttoken_operator.cluster import Cluster, connect
from firsttoken_operator.handlers import State, registry
from firsttoken_operator.health import health_server
from firsttoken_operator.leadership import STOP_SECONDS, Candidacy, lead, until_dead
from firsttoken_operator.prometheus import Prometheus, is_url

log = logging.getLogger("firsttoken")

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def main(argv: list[str] | None = None) -> int:
    """Parse the flags, serve metrics, run. A dead watcher or a lost Lease ends the process with 1 (K1)."""
    args = _parser().parse_args(argv)
    level = logging.DEBUG if args.debug else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    if not args.debug:
        logging.getLogger("kopf").setLevel(logging.WARNING)
    if args.kubeconfig:
        os.environ["KUBECONFIG"] = args.kubeconfig
    if args.metrics_port:
        start_http_server(args.metrics_port, addr=args.bind)
    return asyncio.run(_run(args))


async def _run(args: argparse.Namespace) -> int:
    images = Images(engine=args.engine_image, router=args.router_image, envoy=args.envoy_image)
    kubeconfig = args.kubeconfig or os.environ.get("KUBECONFIG")
    state = State(
        images=images,
        ask_envoys=args.ask_envoys,
        pod_proxy=args.pod_proxy,
        kubeconfig=kubeconfig,
        namespaces=args.namespace,
        workers=args.workers,
        prometheus=Prometheus(args.prometheus_url, args.prometheus_window) if args.prometheus_url else None,
        interval=args.prometheus_interval,
    )

    # A restarted container keeps its pod's name and must not take itself for its predecessor.
    identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"

    async def work() -> None:
        await kopf.operator(
            registry=registry(state),
            # Without one kopf asks for the user's name, and the image's user has none.
            identity=identity,
            standalone=True,
            clusterwide=not args.namespace,
            namespaces=args.namespace,
        )

    try:
        if not args.leader_elect:
            async with health_server(args.bind, args.liveness_port, state.faults):
                return 0 if await _until_done(work, state) else 1
        async with connect(kubeconfig) as cluster:
            candidacy = _candidacy(args, cluster, identity)
            unready = lambda: [candidacy.fault] if candidacy.fault else []  # noqa: E731
            async with health_server(args.bind, args.liveness_port, state.faults, unready):
                return 0 if await lead(candidacy, work, state.faults) else 1
    finally:
        _end_soon()


async def _until_done(work: Callable[[], Awaitable[None]], state: State) -> bool:
    """False if what works is dead and doesn't end by itself (K1)."""
    working, watching = asyncio.ensure_future(work()), asyncio.create_task(until_dead(state.faults))
    await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    watching.cancel()
    if not working.done():
        return False
    working.result()  # raises what ended it
    return True


def _end_soon() -> None:
    """Whatever hangs on the way out, a thread or a task that takes no cancellation: this process ends."""
    timer = threading.Timer(STOP_SECONDS, os._exit, [1])
    timer.daemon = True
    timer.start()


def _candidacy(args: argparse.Namespace, cluster: Cluster, identity: str) -> Candidacy:
    namespace = args.leader_election_namespace
    if namespace is None:
        namespace = _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else "default"
    return Candidacy(cluster, args.leader_election_id, namespace, identity)


def _url(text: str) -> str:
    if text and not is_url(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no base URL (without user and query): give one such as http://prometheus.monitoring:9090"
        )
    return text


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 1 <= (seconds := float(text)) <= 86_400:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is no time: give seconds, from 1 to 86400")


def _parser() -> argparse.ArgumentParser:
    images = Images()
    parser = argparse.ArgumentParser(prog="firsttoken-operator", description="Run the Firsttoken operator.")
    add = parser.add_argument
    add("--namespace", action="append", default=[], help="only this namespace (repeatable); default: all")
    add("--kubeconfig", help="default: $KUBECONFIG, ~/.kube/config, or the pod's service account")
    add("--bind", default="0.0.0.0", help="address of metrics and health")  # noqa: S104 - a pod's
    add("--metrics-port", type=int, default=9090, help="port of /metrics; 0: none")
    add("--liveness-port", type=int, default=8080, help="port of /healthz and /readyz; 0: none")
    add("--workers", type=int, default=8, help="services reconciled at once")
    add("--engine-image", default=images.engine, help="vLLM with firsttoken_runtime (default: %(default)s)")
    add("--router-image", default=images.router, help="vllm-router (default: %(default)s)")
    add("--envoy-image", default=images.envoy, help="Envoy (default: %(default)s)")
    switch = argparse.BooleanOptionalAction
    add("--ask-envoys", action=switch, default=True, help="let each Envoy confirm its routes; needs a way to pods")
    add("--pod-proxy", help="HTTP proxy by which pods are reached from where there is no way to them")
    add(
        "--prometheus-url",
        type=_url,
        help="base URL of Prometheus, such as http://prometheus.monitoring:9090; none: ask nobody",
    )
    add("--prometheus-interval", type=_seconds, default=300.0, help="seconds between two rounds of questions to it")
    add("--prometheus-window", type=_seconds, default=1800.0, help="seconds of measurements that a round looks at")
    add("--leader-elect", action=switch, default=False, help="work only while holding a Lease")
    add("--leader-election-id", default="firsttoken-operator", help="name of the Lease (default: %(default)s)")
    add("--leader-election-namespace", help="its namespace; default: the pod's, or default")
    add("--debug", action="store_true", help="log what kopf does, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
