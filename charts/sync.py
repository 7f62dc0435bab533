"""Copy into the chart what has its source elsewhere, and write its README: `python charts/sync.py`.

Tests fail on a difference.
"""

import subprocess
from pathlib import Path

from firsttoken_local.builds import ensure
from firsttoken_local.progress import Printed

REPOSITORY = Path(__file__).resolve().parent.parent
FILES = REPOSITORY / "charts" / "firsttoken" / "files"


def copies() -> dict[Path, Path]:
    """Files of the chart and their sources."""
    definitions = {FILES / "crds" / path.name: path for path in sorted((REPOSITORY / "crds").glob("*.yaml"))}
    catalogue = REPOSITORY / "controllers" / "firsttoken" / "planning" / "data" / "accelerators.yaml"
    return {**definitions, FILES / "accelerators.yaml": catalogue}


def differences() -> list[Path]:
    """Copies that are missing, that differ from their source, or that have lost it."""
    wanted = copies()
    stale = [path for path in sorted((FILES / "crds").glob("*")) if path not in wanted]
    return stale + [to for to, source in wanted.items() if not to.exists() or to.read_bytes() != source.read_bytes()]


def main() -> None:
    """Make the copies equal to their sources, then have helm-docs write the README."""
    for path in differences():
        source = copies().get(path)
        if source is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source.read_bytes())
    helm_docs = ensure(["helm-docs"], Printed())["helm-docs"] / "helm-docs"
    subprocess.run([helm_docs, "--chart-search-root", FILES.parent.parent, "--log-level", "error"], check=True)


if __name__ == "__main__":
    main()
