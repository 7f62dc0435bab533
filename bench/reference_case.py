"""`make reference-case`: the five steps of the reference case (M8), ours beside theirs, and docs/reference-case.md.

The last line is JSON. `--check` writes nothing and ends with 1 where the document differs.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench.reference_report import figures, page

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.models import model_facts
from firsttoken.planning.types import ModelFacts
from firsttoken.simulation.reference_case import ACCELERATOR, MODEL, REQUESTS_PER_SECOND, SECONDS, play_again, play_all

DOCUMENT = Path(__file__).parent.parent / "docs" / "reference-case.md"
OTHER_LOADS, OTHER_SECONDS = (1 / 8, 1 / 2, 2), 1200.0
OTHER_SEEDS = (2, 3)


def inputs() -> tuple[ModelFacts, AcceleratorProfileSpec]:
    """Model and GPU, of the catalogues."""
    facts = model_facts(ModelSpec.model_validate({"uri": f"hf://{MODEL}"}))
    assert isinstance(facts, ModelFacts), facts  # noqa: S101
    return facts, catalogue()[ACCELERATOR]


def played() -> tuple[str, dict[str, Any]]:
    """The page and its figures."""
    results = play_all(*inputs())
    rates = [REQUESTS_PER_SECOND * factor for factor in OTHER_LOADS]
    loads = {rate: [play_again(one, rate=rate, seconds=OTHER_SECONDS) for one in results] for rate in rates}
    others = {f"seed {seed}": [play_again(one, seed=seed) for one in results] for seed in OTHER_SEEDS}
    others[f"{OTHER_SECONDS:g} instead of {SECONDS:g} s"] = [play_again(one, seconds=OTHER_SECONDS) for one in results]
    return page(results, loads, others), figures(results)


def main() -> int:
    """Print the page, write it, and end with the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where the document differs")
    check = parser.parse_args().check
    text, found = played()
    print(text)
    same = DOCUMENT.exists() and DOCUMENT.read_text(encoding="utf-8") == text
    if not check:
        DOCUMENT.write_text(text, encoding="utf-8")
    print(json.dumps(found, ensure_ascii=False))
    return 1 if check and not same else 0


if __name__ == "__main__":
    sys.exit(main())
