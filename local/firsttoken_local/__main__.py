"""``python -m firsttoken_local build|images|up|import-images|env|kubeconfig|status|down|cache``."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from firsttoken_local import cluster, installation, kept
from firsttoken_local.builds import built, cache_folder, ensure
from firsttoken_local.catalogue import CLUSTER_SETS, NODE_SETS, SETS
from firsttoken_local.ending import down
from firsttoken_local.errors import LocalError
from firsttoken_local.images.archive import ensure_images
from firsttoken_local.images.catalogue import IMAGES
from firsttoken_local.layout import Layout, cluster_folder, cluster_names, load_layout
from firsttoken_local.node.images import described
from firsttoken_local.node.realnode import RealNode, daemon_pids
from firsttoken_local.operator import ACCELERATORS, measuring_flags, start_operator
from firsttoken_local.operator import NAME as OPERATOR
from firsttoken_local.player.start import obstacle, service_url
from firsttoken_local.processes import ProcessTable, resident_mib
from firsttoken_local.progress import Printed, Silent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0 done, 1 fault, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except LocalError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.details:
            print(error.details, file=sys.stderr)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 1


class _Parser(argparse.ArgumentParser):
    """Says a misuse in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see `{self.prog} --help`)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="firsttoken_local", description="A Kubernetes cluster on this machine.")
    commands = parser.add_subparsers(required=True)

    def command(name: str, run: object, text: str, named: bool = True) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        if named:
            sub.add_argument("--name", default="default", help="name of the cluster (default: %(default)s)")
        return sub

    build = command("build", _build, "build the binaries into the cache", named=False)
    build.add_argument(
        "sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; all but a real node's unless told"
    )
    build.add_argument("--real-node", action="store_true", help="build a real node's as well")
    images = command("images", _images, "make images by script, as archives in the cache", named=False)
    images.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(IMAGES)}; all unless told")
    up = command("up", _up, "start a cluster, or what is missing of it")
    up.add_argument("--nodes", type=int, default=4, help="fake GPU nodes (default: %(default)s)")
    up.add_argument("--real-node", action="store_true", help="add a node that runs pods (Linux, root)")
    up.add_argument("--no-prometheus", action="store_true", help="leave Prometheus out")
    up.add_argument("--no-play", action="store_true", help="let the pods on fake nodes answer nobody")
    whose = up.add_mutually_exclusive_group()
    whose.add_argument("--operator", action="store_true", help="start the Firsttoken operator and apply its catalogue")
    whose.add_argument(
        "--bare", action="store_true", help="leave definitions and operator to a `helm install` of yours"
    )
    up.add_argument("--images", action="store_true", help="import images into the real node, made first where missing")
    up.add_argument("--apply", type=Path, nargs="*", default=[], help="YAML files and folders to apply")
    command("import-images", _import_images, "give a running real node all images, made first where missing")
    command("env", _env, "print shell lines that set KUBECONFIG, and PATH for kubectl, helm and firsttoken")
    cache = command("cache", _cache, "show how big the cache is", named=False)
    cache.add_argument("--remove", action="store_true", help="remove it")
    ending = command("down", _down, "end a cluster and remove its state")
    ending.add_argument("--all", action="store_true", help="end all clusters of this checkout")
    command("status", _status, "show the processes of a cluster")
    command("kubeconfig", _kubeconfig, "print the path of the administrator's kubeconfig")
    return parser


def _build(options: argparse.Namespace) -> int:
    unknown = [name for name in options.sets if name not in SETS]
    if unknown:
        raise LocalError(f"there is no build called {unknown[0]}; there are {', '.join(SETS)}")
    ensure([*(options.sets or CLUSTER_SETS), *(NODE_SETS if options.real_node else ())], Printed())
    print(f"built: {cache_folder() / 'bin'}")
    return 0


def _images(options: argparse.Namespace) -> int:
    for archive in ensure_images(options.names or IMAGES, Printed()).values():
        print(f"{', '.join(described(archive))}\n  {archive}")
    return 0


def _up(options: argparse.Namespace) -> int:
    _refuse_two_operators(options)
    why = "--no-play" if options.no_play else "a real node is there" if options.real_node else obstacle()
    running = cluster.up(
        options.name,
        play=not why,
        nodes=options.nodes,
        prometheus=not options.no_prometheus,
        real_node=options.real_node,
        progress=Printed(),
        manifests=[*([ACCELERATORS] if options.operator else []), *options.apply],
        definitions=not options.bare,
    )
    if not running.layout.definitions:
        ensure(["helm"], Printed())
    operator = options.operator or running.processes.record(OPERATOR) is not None  # one that ended is wanted, too
    needed = installation.SERVED_BY if operator else tuple(IMAGES)
    if options.images:
        installation.give_images(_node_of(running), running.layout, needed, Printed())
    if operator:
        flags = [*measuring_flags(running), *(installation.image_flags() if running.node else [])]
        start_operator(running, OPERATOR, *flags, offline=False)
    _tell(options.name, running, operator=operator)
    _tell_services(running, why)
    if running.node and (missing := installation.missing_images(running.node, needed)):
        remedy = f"`python -m firsttoken_local import-images --name {options.name}` makes and imports them"
        print(f"images:      no pod of a service starts on the real node without {', '.join(missing)}; {remedy}")
    return 0


def _refuse_two_operators(options: argparse.Namespace) -> None:
    """One beside the cluster and one of a release in it would work against each other."""
    layout = load_layout(cluster_folder(options.name))
    if layout is None:
        return
    remedy = f"`make cluster-down NAME={options.name}` first, or another NAME"
    if options.operator and not layout.definitions:
        raise LocalError(f"cluster {options.name} was left to a `helm install`: go on with OPERATOR=0, or {remedy}")
    if options.bare and layout.definitions:
        raise LocalError(f"cluster {options.name} has definitions already, which helm would refuse: {remedy}")


def _node_of(running: cluster.LocalCluster) -> RealNode:
    if running.node is None:
        raise LocalError("only a real node runs images: add --real-node, or leave --images out")
    return running.node


def _tell(name: str, running: cluster.LocalCluster, *, operator: bool) -> None:
    print(f"export KUBECONFIG={shlex.quote(str(running.kubeconfig))}")
    print(f"kubectl:     {running.kubectl_path}")
    if not running.layout.definitions:
        print(f"helm:        {built('helm')}/helm")
    if running.layout.values.exists():
        print(f"values:      {running.layout.values}")
    print(f'shell:       eval "$({shlex.quote(sys.executable)} -m firsttoken_local env --name {name})"')
    if operator:
        print(f"operator:    runs; log {running.processes.log(OPERATOR)}")
    if running.node:
        print(f"real node:   {running.node.name}; pods at {running.node.network.node_pods}")
    print(f"audit log:   {running.audit_log}")
    if running.prometheus_url:
        print(f"prometheus:  {running.prometheus_url}")


def _tell_services(running: cluster.LocalCluster, why: str) -> None:
    if running.layout.played:
        base = service_url(running.layout, "SERVICE", "NAMESPACE")
        print(f"services:    {base}/v1, through their own Envoys; engines are simulated")
    else:
        print(f"services:    pods on fake nodes answer nobody ({why or 'so was this cluster made'})")


def _import_images(options: argparse.Namespace) -> int:
    node, layout = installation.running_node(options.name)
    installation.give_images(node, layout, IMAGES, Printed())
    print(f"values:      {layout.values}")
    return 0


def _down(options: argparse.Namespace) -> int:
    if options.all:
        for name in cluster_names():
            down(name, progress=Printed())
            print(f"cluster {name} is down")
        return 0
    existed = down(options.name, progress=Printed())
    print(f"cluster {options.name} is down" if existed else f"there is no cluster {options.name}")
    return 0


def _status(options: argparse.Namespace) -> int:
    folder = cluster_folder(options.name)
    processes = ProcessTable(folder)
    records = processes.records()
    if not records:
        print(f"there is no cluster {options.name}; clusters: {', '.join(cluster_names()) or 'none'}")
        return 1
    dead = 0
    for record in records:
        alive = processes.alive(record.name)
        dead += not alive
        state = f"pid {record.pid}, {resident_mib(record.pid):.0f} MiB" if alive else "ended; `up` restarts it"
        print(f"{record.name:26}{state}")
    for name, pid in daemon_pids(processes).items():
        print(f"{'  ' + name:26}pid {pid}, {resident_mib(pid):.0f} MiB")
    layout = load_layout(folder)
    if layout:
        print(f"{'API server':26}{layout.server}\n{'state':26}{folder}")
    return 1 if dead else 0


def _kubeconfig(options: argparse.Namespace) -> int:
    print(_running_layout(options.name).kubeconfig)
    return 0


def _running_layout(name: str) -> Layout:
    layout = load_layout(cluster_folder(name))
    if layout is None or not layout.kubeconfig.exists():
        raise LocalError(f"there is no cluster {name}: `make cluster NAME={name}` starts it")
    if not ProcessTable(layout.directory).alive("kube-apiserver"):
        raise LocalError(f"cluster {name} does not run: `make cluster NAME={name}` starts it again")
    return layout


def _env(options: argparse.Namespace) -> int:
    """For a shell's eval: paths are quoted, and what is not built (helm) is left out."""
    layout = _running_layout(options.name)
    folders = [ensure(["kubernetes"], Silent())["kubernetes"], built("helm"), Path(sys.executable).parent]
    path = ":".join(shlex.quote(str(one)) for one in folders if one)
    print(f'export KUBECONFIG={shlex.quote(str(layout.kubeconfig))}\nexport PATH={path}:"$PATH"')
    return 0


def _cache(options: argparse.Namespace) -> int:
    parts = kept.remove() if options.remove else kept.sizes()
    print(f"{'removed from' if options.remove else 'in'} {cache_folder()}:")
    for name, size in parts.items():
        print(f"{size / 1e6:10,.0f} MB  {name:8}{kept.PARTS[name]}")
    print(f"{sum(parts.values()) / 1e6:10,.0f} MB  in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
