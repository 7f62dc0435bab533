"""Where compiled code is kept."""

import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
import numba
from firsttoken.simulation import queues
print(queues.next_ready._cache.cache_path)
print([numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES])
"""


@pytest.mark.parametrize("writable", [True, False])
def test_it_is_below_the_users_cache_directory_if_that_can_be_written(tmp_path: Path, writable: bool) -> None:
    """A file stands where the directory would be, since root may write anywhere."""
    cache = tmp_path / "cache"
    if not writable:
        cache.write_text("")
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env={"XDG_CACHE_HOME": str(cache)}, capture_output=True, text=True, check=True
    )
    path, own = done.stdout.split("\n")[:2]
    assert path.startswith(f"{cache}/firsttoken/numba/") if writable else path == "None"
    assert own == "['', '']"  # what else uses numba is left alone
