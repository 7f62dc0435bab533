"""A model that nobody knows: what was meant, and what to say of it instead."""

import difflib
import re
from collections.abc import Iterable, Mapping

from firsttoken.planning.types import Infeasible

INLINE_FIELDS = (
    "hiddenSize", "numHiddenLayers", "numAttentionHeads", "numKeyValueHeads", "intermediateSize", "vocabSize",
    "maxPositionEmbeddings",
)  # fmt: skip
PRESET, URI = "spec.model.architecture.preset", "spec.model.uri"
# Characters by which a name may differ from the one that was meant: `Instrct` by 1, `7B-AWQ` from `7B` by 4.
MOST_TYPOS = 3


def unknown(name: str, where: str, uris: Mapping[str, Iterable[str]], *, hub: bool) -> Infeasible:
    """The refusal of the model called `name` at the field `where`. `uris`: those of each preset of the catalogue.
    `hub`: it is an hf:// repository.

    A repository that differs from a known one by a slip is asked for first; a preset is for another copy of a model.
    """
    slip = _slip(name, [u for known in uris.values() for u in known]) if hub else None
    near = _near(slip or name, uris)
    form = ", and an hf:// model is org/name" if slip and "/" not in name else ""
    remedy = "name a preset of the catalogue" if where == PRESET else f"set {PRESET} to its equal"
    if slip:
        remedy = f"did you mean hf://{slip}? If it is another copy, set {PRESET} ({near[0]}?)"
    elif near:
        remedy = f"did you mean the preset {', '.join(near)}? {remedy[0].upper()}{remedy[1:]}"
    text = (
        f"{where}: {name!r} is not in the model catalogue{form}; {remedy}, or copy {', '.join(INLINE_FIELDS)} from its "
        "config.json to spec.model.architecture.inline"
    )
    offers = {URI: f"hf://{slip}"} if slip else {}
    return Infeasible("UnknownModel", text, {**offers, **({PRESET: near[0]} if near else {})})


def _slip(name: str, known: Iterable[str]) -> str | None:
    """The repository of `known` that was meant, if only a few letters, or the organisation, are missing."""
    found = [(_typos(name, uri), uri) for uri in known]
    close = [(typos, uri) for typos, uri in found if typos is not None]
    return min(close)[1] if close else None


def _typos(name: str, uri: str) -> int | None:
    """Characters by which they differ; None for more than a slip. Digits (sizes, versions) must be equal."""
    org, _, own = uri.lower().partition("/")
    given_org, _, given = name.lower().rpartition("/")
    if re.findall(r"\d+", own) != re.findall(r"\d+", given):
        return None
    parts = [_distance(given, own), *([_distance(given_org, org)] if given_org else [])]
    return sum(parts) if max(parts) <= MOST_TYPOS else None


def _distance(a: str, b: str) -> int:
    """Characters that are in one of them only, in order."""
    same = sum(block.size for block in difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks())
    return len(a) + len(b) - 2 * same


def _near(name: str, uris: Mapping[str, Iterable[str]]) -> list[str]:
    """Presets whose name or URI resembles `name`, best first."""
    known = {
        word.lower(): preset
        for preset, own in uris.items()
        for word in (preset, *own, *(u.rsplit("/", 1)[-1] for u in own))
    }
    close = difflib.get_close_matches(name.lower(), sorted(known), n=6, cutoff=0.7)
    return list(dict.fromkeys(known[c] for c in close))[:3]
