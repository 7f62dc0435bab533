"""The images that every real node has: what holds a pod's namespaces, a small userland, and the machine's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from firsttoken_local.node.config import PAUSE
from firsttoken_local.node.images import Directory, File, Layer, Link, build_image
from firsttoken_local.node.requirements import command

BUSYBOX = "localhost/busybox:1"
HOST = "localhost/host:1"
# Applets that call getaddrinfo: in a statically linked glibc that ends with a segmentation fault.
BROKEN = frozenset({"busybox", "ftpget", "ftpput", "nc", "ping", "ping6", "telnet", "tftp", "wget"})
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_BASE: Layer = (
    Directory("etc"),
    File("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    File("etc/group", b"root:x:0:\nnogroup:x:65534:\n"),
    File("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n"),
    Directory("root", 0o700),
    Directory("run"),
    Directory("tmp", 0o1777),
    Directory("var"),
    Directory("var/tmp", 0o1777),
)


def helper_images(folder: Path, pause: Path) -> dict[str, Path]:
    """Write the helper images below ``folder`` and return the archives by reference.

    ``localhost/host:1`` is an empty root whose ``bin``, ``lib`` and so on lead to ``usr``: with the machine's
    ``/usr`` mounted there (and ``/etc/ld.so.cache``), a pod runs the machine's own programs.

    Raises:
        LocalError: busybox is missing.
    """
    busybox = Path(command("busybox"))
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    applets = [Link(f"bin/{name}", "busybox") for name in sorted(set(listed) - BROKEN)]
    userland = [*_BASE, Directory("bin"), File("bin/busybox", busybox, 0o755), *applets]
    merged = [Link(name, f"usr/{name}") for name in ("bin", "sbin", "lib", "lib64", "lib32", "libx32")]
    host = [*_BASE, Directory("usr"), *merged]
    return {
        PAUSE: _made(folder, PAUSE, [File("pause", pause, 0o755)], Entrypoint=["/pause"], User="65534:65534"),
        BUSYBOX: _made(folder, BUSYBOX, userland, Env=[PATH], Cmd=["sh"]),
        HOST: _made(folder, HOST, host, Env=[PATH], Cmd=["/bin/bash"]),
    }


def _made(folder: Path, reference: str, layer: Layer, **config: object) -> Path:
    name = reference.rpartition("/")[2].replace(":", "-")
    return build_image(reference, [layer], config, target=folder / f"{name}.tar")
