"""Where the files of a real node lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from firsttoken_local.errors import LocalError

_LONGEST_SOCKET = 107  # bytes; what the kernel accepts as the path of a Unix socket


@dataclass(frozen=True)
class NodePaths:
    """The paths below ``<state directory>/node``; ``run`` is emptied whenever the node starts, as after a reboot."""

    root: Path

    @property
    def run(self) -> Path:
        """Sockets, runtime state, given addresses."""
        return self.root / "run"

    @property
    def socket(self) -> Path:
        """containerd's socket."""
        return self.run / "containerd.sock"

    @property
    def joined(self) -> Path:
        """Appears when the API server is ready for the node: the kubelet waits for it."""
        return self.run / "joined"

    @property
    def config(self) -> Path:
        """Configuration files and kubeconfigs."""
        return self.root / "config"

    @property
    def containerd(self) -> Path:
        """Images and containers."""
        return self.root / "containerd"

    @property
    def kubelet(self) -> Path:
        """The kubelet's volumes and pods."""
        return self.root / "kubelet"

    @property
    def images(self) -> Path:
        """The helper images as tar files."""
        return self.root / "images"

    def check_length(self) -> None:
        """Raise when Unix sockets could not be made.

        Raises:
            LocalError: the state directory's path is too long.
        """
        longest = len(str(self.socket).encode()) + len(".ttrpc")
        if longest > _LONGEST_SOCKET:
            raise LocalError(
                f"the state directory's path is {longest - _LONGEST_SOCKET} bytes too long for the sockets of a real"
                f" node: {self.root.parent}"
            )
