"""``PYTHONPATH=local python3 -m firsttoken_local.check``: whether a cluster can be built here, before anything slow.

It needs no installed package, so it can come before the installation of any. Nothing is demanded of a machine whose
cache has everything already.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence

from firsttoken_local.builds import built, cache_folder, make_cache
from firsttoken_local.catalogue import CLUSTER_SETS
from firsttoken_local.errors import LocalError
from firsttoken_local.layout import cluster_folder
from firsttoken_local.node.requirements import check_rights, missing_packages, search_path


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


def check_real_node() -> None:
    """See that a real node and its images can be made here; packages that apt can bring may be missing.

    Raises:
        LocalError: what is in the way.
    """
    check_rights()
    lacking = [*missing_packages(), *(["mmdebstrap"] if shutil.which("mmdebstrap", path=search_path()) is None else [])]
    if lacking and shutil.which("apt-get", path=search_path()) is None:
        raise LocalError(f"a real node needs (Debian's names) {' '.join(lacking)}, and there is no apt to install them")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when all is well, and 1 after one line that says what to do."""
    parser = argparse.ArgumentParser(prog="firsttoken_local.check", description="See whether a cluster can be built.")
    parser.add_argument("--name", help="name of a cluster, checked as well")
    parser.add_argument("--real-node", action="store_true", help="see only whether a real node is possible")
    options = parser.parse_args(arguments)
    try:
        check_real_node() if options.real_node else check(options.name)
    except LocalError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
