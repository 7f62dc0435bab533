"""`make demo` does what the README says, in a cluster of its own, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys

from e2e.support import unique

from firsttoken_local.layout import cluster_folder
from firsttoken_local.player.start import obstacle


def test_the_demo_tells_the_whole_story_and_cleans_up() -> None:
    name = unique("demo")
    command = [sys.executable, "-m", "firsttoken_local.demo", "--name", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    said = done.stdout
    for told in (
        "no model runs",
        "TensorParallel",
        "Ready",
        "2 of 2 ready",
        "endpoint",
        "Draining",
        "targets up",
        "done after",
    ):
        assert told in said, f"the demo doesn't tell {told!r}:\n{said}"
    assert ("pods can't be played here" in said) == bool(obstacle())
    if not obstacle():
        for told in ("TTFT CLIENT", "512-1024", "1024-4096", "during the change, 0 cut", "simulated"):
            assert told in said, f"the demo doesn't tell {told!r}:\n{said}"
    assert not cluster_folder(name).exists()


def test_a_demo_that_fails_says_so_and_cleans_up() -> None:
    name = unique("demo")
    code = (
        "import sys; from firsttoken_local import demo; demo.PATIENCE_S = 0.0;"
        f"sys.exit(demo.main(['--name', '{name}']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 1
    assert "waiting for kb-assistant to be Ready" in done.stdout
    assert not cluster_folder(name).exists()
