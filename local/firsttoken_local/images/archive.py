"""Archives of the images in the cache: made when their content changed, older ones removed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from firsttoken_local.builds import locked, make_cache
from firsttoken_local.errors import LocalError
from firsttoken_local.images.cache import images_folder, remove_older
from firsttoken_local.images.catalogue import IMAGES, image_key, reference
from firsttoken_local.node.images import build_image
from firsttoken_local.progress import Progress

TRIES = 3  # somebody may be editing what an image is made of


def ensure_images(names: Iterable[str], told: Progress) -> dict[str, Path]:
    """Return the OCI archives of images by name; what is in the cache under the same key is not made again.

    One process at a time makes images, so that nobody removes what another one is making an image of.

    Raises:
        LocalError: there is no such image, or it could not be made.
    """
    wanted = list(names)
    if unknown := [name for name in wanted if name not in IMAGES]:
        raise LocalError(f"there is no image called {unknown[0]}; there are {', '.join(IMAGES)}")
    make_cache(images_folder())
    with locked(
        images_folder() / "images.lock", lambda: told.line("images: waiting for another process that makes some")
    ):
        return {name: _ensure_one(name, told) for name in wanted}


def _ensure_one(name: str, told: Progress) -> Path:
    for _ in range(TRIES):
        key = image_key(name)
        target = images_folder() / f"{name}-{key}.tar"
        if target.is_file():
            return target
        content = IMAGES[name].content(told)
        told.transient(f"images: writing {reference(name)}")
        build_image(reference(name), content.layers, content.config, target=target)
        if image_key(name) == key:
            remove_older(name, target)
            told.line(f"images: {reference(name)} ({target.stat().st_size / 1e6:,.0f} MB)")
            return target
        target.unlink()
    raise LocalError(f"files changed while the image {name} was made of them: run it again when nobody edits them")
