"""Compiled functions, kept on disk below the user's cache directory so that only the first run compiles."""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, TypeVar, cast

import numba
from numba.misc.appdirs import AppDirs

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """`function` compiled on its first call, without fast-math: the same floats as in Python.

    numba looks only at a function's own file to see whether what it kept is stale, not at what that file calls or which
    constants it imports, so the directory is named by the sources of both packages. Where nothing can be written,
    nothing is kept.
    """
    given = numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES
    # Nowhere else: beside the sources, numba's next choice, kept code would be believed after a change in another file.
    numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = _directory(), "UserProvidedCacheLocator"
    try:
        found = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # no place to write to
        found = numba.njit(error_model="numpy")(function)
    finally:
        numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = given
    return cast(F, found)


@cache
def _directory() -> str:
    digest = sha256()
    for package in ("firsttoken.simulation", "firsttoken.planning.timing"):
        for file in sorted(files(package).iterdir(), key=lambda f: f.name):
            if file.name.endswith(".py"):
                digest.update(file.read_bytes())
    # NUMBA_BOUNDSCHECK=1 (`make check-bounds`) compiles checks into every index; numba keeps both under one name.
    checked = "-checked" if numba.config.BOUNDSCHECK else ""
    # The same place as the rest of Firsttoken's cache: $XDG_CACHE_HOME, else ~/.cache.
    return f"{AppDirs('firsttoken', appauthor=False).user_cache_dir}/numba/{digest.hexdigest()[:16]}{checked}"
