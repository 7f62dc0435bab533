"""`python -m firsttoken_operator`: run the operator until it is told to stop."""

import argparse
import logging
import os
import sys

import kopf
from prometheus_client import start_http_server

from firsttoken.manifests.images import Images
from firsttoken_operator.handlers import State, registry


def main(argv: list[str] | None = None) -> int:
    """Parse the flags, serve metrics, run. Ends with kopf's tasks: a dead watcher ends the process (K1)."""
    args = _parser().parse_args(argv)
    logging.basicConfig(
        level=logging.DEBUG if args.debug else logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    if not args.debug:
        logging.getLogger("kopf").setLevel(logging.WARNING)
    if args.kubeconfig:
        os.environ["KUBECONFIG"] = args.kubeconfig
    if args.metrics_port:
        start_http_server(args.metrics_port, addr=args.bind)
    images = Images()
    state = State(images=images, kubeconfig=args.kubeconfig or os.environ.get("KUBECONFIG"), workers=args.workers)
    kopf.run(
        registry=registry(state),
        standalone=True,
        clusterwide=not args.namespace,
        namespaces=args.namespace,
        liveness_endpoint=f"http://{args.bind}:{args.liveness_port}/healthz" if args.liveness_port else None,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="firsttoken-operator", description="Run the Firsttoken operator.")
    parser.add_argument(
        "--namespace", action="append", default=[], help="only this namespace (repeatable); default: all"
    )
    parser.add_argument("--kubeconfig", help="default: $KUBECONFIG, ~/.kube/config, or the pod's service account")
    parser.add_argument("--bind", default="0.0.0.0", help="address of metrics and liveness")  # noqa: S104 - a pod's
    parser.add_argument("--metrics-port", type=int, default=9090, help="port of /metrics; 0: none")
    parser.add_argument("--liveness-port", type=int, default=8080, help="port of /healthz; 0: none")
    parser.add_argument("--workers", type=int, default=8, help="services reconciled at once")
    parser.add_argument("--debug", action="store_true", help="log what kopf does, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
