"""``PYTHONPATH=local python3 -m firsttoken_local.check``: whether a cluster can be built here, before anything slow.

It needs no installed package, so it can come before the installation of any. Nothing is demanded of a machine whose
cache has everything already.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from firsttoken_local.builds import built, cache_folder, make_cache
from firsttoken_local.catalogue import CLUSTER_SETS
from firsttoken_local.errors import LocalError
from firsttoken_local.layout import cluster_folder


def check(name: str | None = None) -> None:
    """See that the name is one, that Go is there if something has to be built, and that the cache can be written.

    Raises:
        LocalError: one of them is not so.
    """
    if name is not None:
        cluster_folder(name)
    missing = [one for one in CLUSTER_SETS if built(one) is None]
    if missing:
        make_cache(cache_folder())


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when all is well, and 1 after one line that says what to do."""
    parser = argparse.ArgumentParser(prog="firsttoken_local.check", description="See whether a cluster can be built.")
    parser.add_argument("--name", help="name of a cluster, checked as well")
    try:
        check(parser.parse_args(arguments).name)
    except LocalError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
