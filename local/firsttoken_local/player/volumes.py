"""A pod's files and words as the kubelet and the container runtime would lay them out, in a folder of this machine."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Object = Mapping[str, Any]


def write_volume(folder: Path, data: Mapping[str, str]) -> None:
    """Lay out a ConfigMap as the kubelet does: files are links into a folder that is exchanged in one rename."""
    numbers = (folder / f"..{number}" for number in itertools.count())
    target = next(one for one in numbers if not one.exists())
    target.mkdir(parents=True)
    for name, text in data.items():
        (target / name).write_text(text)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data") / name)
    before = (folder / "..data").resolve()
    partial = folder / "..data_tmp"
    partial.unlink(missing_ok=True)
    partial.symlink_to(target.name)
    partial.replace(folder / "..data")
    for path in folder.iterdir():
        if path.is_symlink() and not path.name.startswith("..") and not path.exists():
            path.unlink()
    if before.name.startswith("..") and before != target.resolve():
        shutil.rmtree(before, ignore_errors=True)


class PodFolder:
    """Where one pod's volumes lie, and how its words are translated.

    What can't be here as in a container is replaced in arguments and in Envoy's bootstrap, and nothing else: the
    paths of mounts by folders, and the addresses 0.0.0.0 and 127.0.0.1 by the pod's own, since all pods share one
    network namespace.
    """

    def __init__(self, folder: Path, pod: Object) -> None:
        self.folder = folder
        self.address: str = pod["status"]["podIP"]
        (container, *_) = pod["spec"]["containers"]
        self._maps = {v["name"]: v["configMap"]["name"] for v in pod["spec"].get("volumes", []) if "configMap" in v}
        self._paths = {
            mount["mountPath"]: str(folder / mount["name"])
            for mount in container.get("volumeMounts", [])
            if mount["name"] in self._maps
        }

    @property
    def config_maps(self) -> dict[str, str]:
        """Names of ConfigMaps by volume."""
        return self._maps

    def path(self, mount: str) -> Path | None:
        """The folder of a path in the container, None when nothing of a ConfigMap is mounted there."""
        found = self._paths.get(mount)
        return Path(found) if found else None

    def translated(self, text: str) -> str:
        """Words of the pod as they are right here."""
        for path, here in sorted(self._paths.items(), reverse=True):
            text = text.replace(path, here)
        return text.replace("0.0.0.0", self.address).replace("127.0.0.1", self.address)  # noqa: S104 - not bound to

    def sync(self, volume: str, data: Mapping[str, str], *, translate: bool) -> None:
        """Write a volume, unless it holds exactly this already."""
        wanted = {name: self.translated(text) if translate else text for name, text in data.items()}
        folder = self.folder / volume
        now = {path.name: path.read_text() for path in folder.glob("[!.]*")} if folder.is_dir() else None
        if now != wanted:
            write_volume(folder, wanted)

    def remove(self) -> None:
        """The pod is gone."""
        shutil.rmtree(self.folder, ignore_errors=True)


def search_path(first: Path) -> str:
    """PATH with a folder in front."""
    return os.pathsep.join([str(first), os.environ.get("PATH", os.defpath)])
