"""Archives of the images in the cache: made when their content changed, older ones removed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from firsttoken_local.builds import cache_folder, locked, make_cache
from firsttoken_local.errors import LocalError
from firsttoken_local.images.catalogue import IMAGES, image_key, reference
from firsttoken_local.node.images import build_image
from firsttoken_local.progress import Progress


def ensure_images(names: Iterable[str], told: Progress) -> dict[str, Path]:
    """Return the OCI archives of images by name; what is in the cache with the same content is not made again.

    Raises:
        LocalError: there is no such image, or it could not be made.
    """
    wanted = list(names)
    if unknown := [name for name in wanted if name not in IMAGES]:
        raise LocalError(f"there is no image called {unknown[0]}; there are {', '.join(IMAGES)}")
    return {name: _ensure_one(name, told) for name in wanted}


def _ensure_one(name: str, told: Progress) -> Path:
    folder = cache_folder() / "images"
    target = folder / f"{name}-{image_key(name)}.tar"
    make_cache(folder)
    with locked(folder / f"{name}.lock"):
        if not target.is_file():
            content = IMAGES[name].content(told)
            told.transient(f"images: writing {reference(name)}")
            build_image(reference(name), content.layers, content.config, target=target)
            _remove_older(folder, name, target)
            told.line(f"images: {reference(name)} ({target.stat().st_size / 1e6:,.0f} MB)")
    return target


def _remove_older(folder: Path, name: str, kept: Path) -> None:
    key = len(kept.stem) - len(name) - 1
    for path in folder.glob(f"{name}-{'?' * key}.tar"):
        if path != kept:
            path.unlink(missing_ok=True)
