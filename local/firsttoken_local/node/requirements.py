"""What a real node needs of the machine: Linux, root, and a few of its packages."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from firsttoken_local.commands import finished
from firsttoken_local.errors import LocalError
from firsttoken_local.progress import Progress

CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
CNI_PLUGINS = ("ptp", "host-local", "loopback")
PACKAGES: Mapping[str, str] = {  # what is looked for, and Debian's package of it
    "ip": "iproute2",
    "unshare": "util-linux",
    "mount": "mount",
    "nft": "nftables",
    "runc": "runc",
    "cni": "containernetworking-plugins",
    "busybox": "busybox-static",
}
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"  # root's PATH may lack them, for instance under su


def search_path() -> str:
    """Return a PATH on which the machine's administration commands are found."""
    return f"{os.environ.get('PATH', '/usr/bin:/bin')}:{_SBIN}"


def command(name: str) -> str:
    """Return the path of a command of the machine.

    Raises:
        LocalError: it is missing; names the package.
    """
    found = shutil.which(name, path=search_path())
    if found is None:
        raise LocalError(f"the command {name} is missing: install the package {PACKAGES.get(name, name)}")
    return found


def cni_folder() -> Path | None:
    """Return the folder that holds the network plugins, or None."""
    folders = (folder for folder in CNI_FOLDERS if all((folder / name).exists() for name in CNI_PLUGINS))
    return next(folders, None)


def missing_packages() -> list[str]:
    """Return Debian's names of the packages that are not there."""

    def there(name: str) -> bool:
        return cni_folder() is not None if name == "cni" else shutil.which(name, path=search_path()) is not None

    return [package for name, package in PACKAGES.items() if not there(name)]


def check_rights() -> None:
    """See whether this process may do what a real node does to the machine; nothing is changed.

    Raises:
        LocalError: one line on what to change.
    """
    if sys.platform != "linux":
        raise LocalError("a real node needs Linux; leave it out, or use a virtual machine with Linux")
    if os.geteuid() != 0:
        raise LocalError("a real node needs root (namespaces, mounts, cgroups): run it with sudo, or leave it out")
    if not Path("/sys/fs/cgroup").is_dir():
        raise LocalError("a real node needs cgroups at /sys/fs/cgroup, and there are none")
    # Root of a container may lack these rights. Where the commands are missing, the packages are what is to be said.
    if all(shutil.which(name, path=search_path()) for name in ("unshare", "mount")):
        namespaces = [command("unshare"), "--mount", "--pid", "--net", "--fork"]
        tried = finished([*namespaces, command("mount"), "-t", "tmpfs", "none", "/mnt"], timeout_s=60.0)
        if tried.returncode:
            raise LocalError(
                "a real node needs to make namespaces and mounts, which root may not do here (a container without"
                f" privileges?): {(tried.stderr.strip() or 'no reason given').splitlines()[-1]}"
            )


def check_machine(progress: Progress) -> None:
    """Make sure that a real node can run here; where apt is at hand, install what is missing.

    Raises:
        LocalError: one line on what to change.
    """
    check_rights()
    missing = missing_packages()
    if missing and shutil.which("apt-get"):
        install_packages(missing, progress, "real node")
        missing = missing_packages()
    if missing:
        raise LocalError(f"a real node needs packages that are missing; install (Debian's names): {' '.join(missing)}")


def install_packages(packages: list[str], progress: Progress, who: str) -> None:
    """Install packages of Debian by apt, and say so first: it changes the machine. ``who`` needs them.

    Raises:
        LocalError: apt-get failed.
    """
    progress.line(f"{who}: installing {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    for arguments in (install, ["apt-get", "update", "-q"], install):
        done = finished(arguments, env=environment, timeout_s=1800.0)
        if done.returncode == 0 and arguments is install:
            return
    raise LocalError(f"apt-get could not install {' '.join(packages)}", (done.stdout + done.stderr).strip()[-2000:])
