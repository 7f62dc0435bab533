"""Layers that a quantised checkpoint keeps in 16 bits: which its config.json names, and how many weights they are.

Publishers list them one by one (`model.layers.0.mlp.down_proj`, up to megabytes), by globs (`model.layers.0*`) or by
regular expressions (`re:.*self_attn.*`). What is kept of a list is a count a matrix: in how many layers it is named.
Embeddings, output head, routers, norms and image encoders are in 16 bits anyway, named or not.
"""

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firsttoken.api.architecture import InlineArchitecture
from firsttoken.planning import shape as shapes

Config = Mapping[str, Any]

KEPT = "kept_layers"  # our own key, in what a record keeps of quantization_config
LISTS = ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules")
# The matrices of a layer as checkpoints name them, by ours. Of experts the first stands for all: vLLM serves the
# experts of a layer in one format.
NAMES: Mapping[str, tuple[str, ...]] = {
    "query": ("self_attn.q_proj", "self_attn.qkv_proj"),
    "key": ("self_attn.k_proj", "self_attn.qkv_proj"),
    "value": ("self_attn.v_proj", "self_attn.qkv_proj"),
    "output": ("self_attn.o_proj",),
    "query_down": ("self_attn.q_a_proj",),
    "query_up": ("self_attn.q_b_proj",),
    "latent_down": ("self_attn.kv_a_proj_with_mqa",),
    "latent_up": ("self_attn.kv_b_proj",),
    "gate": ("mlp.gate_proj", "mlp.gate_up_proj"),
    "up": ("mlp.up_proj", "mlp.gate_up_proj"),
    "down": ("mlp.down_proj",),
    "shared": ("mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj"),
    "experts": ("mlp.experts.0.down_proj", "block_sparse_moe.experts.0.w2"),
}
LONGEST_NAME = len("model.layers.999.") + max(len(path) for paths in NAMES.values() for path in paths)  # characters
_OTHERS = re.compile(
    "vision|visual|audio|mtp"
)  # encoders, and layers for several tokens at once, have their own layers
# Bounds before anything is expanded or matched: published lists have a few dozen patterns of up to 100 characters.
# What lies beyond counts for nothing, like what is not understood.
LONGEST_PATTERN = 512  # characters of an entry
MOST_PATTERNS = 256  # globs and expressions of all lists together, and globs that they stand for
MOST_MATCHES = 2**16  # layers x globs: each is tried on every matrix's names
# What is understood of a regular expression, as globs. They are matched in time that grows with the length alone, and
# their number and length are bounded: an expression out of somebody's repository can't keep the operator busy.
_GROUP = re.compile(r"\((?:\?:)?([^()]*)\)(?![*+?{])")
_TOKEN = re.compile(
    r"(?P<any>(?:\.|\\d|\[0-9\])[*+]\??)|(?P<one>\\d|\.)|(?P<class>\[[0-9-]+\])|\\(?P<escaped>[.\-_])|(?P<plain>[\w-])"
)


def kept_layers(said: Config, layers: int) -> dict[str, int]:
    """In how many of the `layers` each matrix stays in 16 bits, by our names; matrices that stay in none are left out.

    `said` is a quantization_config, or what `essentials` left of one. Patterns that are not understood count for
    nothing, as do names of other models' layers.
    """
    if isinstance(said.get(KEPT), Mapping):
        return {n: min(c, layers) for n, c in said[KEPT].items() if n in NAMES and isinstance(c, int) and c > 0}
    inner = said.get("quantization")
    entries = [e for place in (said, inner if isinstance(inner, Mapping) else {}) for e in _entries(place)]
    if not entries:
        return {}
    named = _matcher(entries, min(MOST_PATTERNS, MOST_MATCHES // max(1, layers)))
    found = {
        name: sum(any(named(f"layers.{i}.{path}") for path in paths) for i in range(layers))
        for name, paths in NAMES.items()
    }
    return {name: count for name, count in found.items() if count}


def kept_parameters(
    kept: Mapping[str, int],
    shape: InlineArchitecture,
    mla: shapes.LatentAttention | None = None,
    moe: shapes.ExpertLayout | None = None,
) -> int:
    """Weights of the matrices in `kept` (see `kept_layers`), of the whole model."""
    dense = shape.num_hidden_layers if shape.num_experts is None else (moe or shapes.ExpertLayout()).first_dense_layers
    sparse = shape.num_hidden_layers - dense
    there = {"gate": dense, "up": dense, "down": dense, "shared": sparse, "experts": sparse}
    sizes = _sizes(shape, mla, moe or shapes.ExpertLayout())
    return sum(min(count, there.get(name, count)) * sizes.get(name, 0) for name, count in kept.items())


def _sizes(shape: InlineArchitecture, mla: shapes.LatentAttention | None, moe: shapes.ExpertLayout) -> dict[str, int]:
    """Weights of each matrix in one layer that has it; a model without a matrix has no entry for it."""
    hidden, width = shape.hidden_size, shape.moe_intermediate_size or shape.intermediate_size
    matrices = 3 if shape.gated_mlp else 2
    sizes = dict.fromkeys(("up", "down", *(("gate",) if shape.gated_mlp else ())), hidden * shape.intermediate_size)
    sizes["shared"] = moe.shared_experts * matrices * hidden * width
    sizes["experts"] = (shape.num_experts or 0) * matrices * hidden * width
    heads = shape.num_attention_heads
    if mla is None:
        query, keys = heads * shapes.head_dim(shape), shapes.kv_heads(shape) * shapes.head_dim(shape)
        return {
            **sizes,
            "query": hidden * query,
            "output": hidden * query,
            "key": hidden * keys,
            "value": hidden * keys,
        }
    query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    rank = mla.q_lora_rank
    queries = {"query_down": hidden * rank, "query_up": rank * query} if rank else {"query": hidden * query}
    return {
        **sizes,
        **queries,
        "latent_down": hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim),
        "latent_up": mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim),
        "output": heads * mla.v_head_dim * hidden,
    }


def _entries(said: Config) -> list[str]:
    lists = (said.get(key) for key in LISTS)
    return [entry for one in lists if isinstance(one, list | tuple) for entry in one if isinstance(entry, str)]


def _matcher(entries: Sequence[str], most: int) -> Callable[[str], bool]:
    """Whether a name from `layers.` on is among the entries: itself, a part of its path, or by one of `most` globs."""
    own = [e for e in dict.fromkeys(entries) if len(e) <= LONGEST_PATTERN and not _OTHERS.search(e)]
    plain = {_from_layers(e) for e in own if not _is_pattern(e)}
    patterns = [re.compile(fnmatch.translate(g)) for g in _all_globs([e for e in own if _is_pattern(e)], most)]

    def named(name: str) -> bool:
        parts = name.split(".")
        paths = (".".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))
        return any(path in plain for path in paths) or any(p.match(f"model.{name}") for p in patterns)

    return named


def _is_pattern(entry: str) -> bool:
    return "*" in entry or entry.startswith("re:")


def _all_globs(entries: Sequence[str], most: int) -> list[str]:
    """What the patterns name, as at most so many globs that can match a name."""
    ways = _Ways(MOST_PATTERNS * 4)
    found: dict[str, None] = {}
    for entry in entries[:MOST_PATTERNS]:
        for glob in (_from_layers(g, "*") for g in _globs(entry, ways)):
            # "?*?*" is "??*": stars beside question marks would be tried against each other.
            tidy = re.sub(r"[*?]*\*[*?]*", lambda run: "?" * run[0].count("?") + "*", glob)
            if len(tidy.replace("*", "")) <= LONGEST_NAME:
                found[tidy] = None
    return list(found)[:most]


def _from_layers(entry: str, start: str = "") -> str:
    """From `layers.` on, whatever stands before it: `model.` or, of a multimodal model, `language_model.model.`."""
    found = re.search(r"layers[.?]", entry)
    return entry if found is None else start + entry[found.start() :]


class _Ways:
    """The ways through expressions, of which there are at most so many in all lists together."""

    def __init__(self, left: int) -> None:
        self.left = left

    def through(self, text: str) -> list[str]:
        """An expression without its groups: one for each way through them; nothing where there are too many."""
        waiting = [text]
        done: list[str] = []
        while waiting and self.left > 0 and len(waiting) + len(done) <= MOST_PATTERNS:
            self.left -= 1
            one = waiting.pop()
            group = _GROUP.search(one)
            if group is None:
                done += one.split("|")
            else:
                before, after = one[: group.start()], one[group.end() :]
                waiting += [before + option + after for option in group[1].split("|")]
        return [] if waiting or len(done) > MOST_PATTERNS else done


def _globs(entry: str, ways: _Ways) -> list[str]:
    """What a glob or a regular expression names, as globs; nothing for one that is not understood."""
    if not entry.startswith("re:"):
        glob = re.sub(r"\*+", "*", entry)
        return [glob, f"{glob}.*"]  # a module stands for all below it: "model.layers.*.self_attn"
    found = [_glob(text) for text in ways.through(entry.removeprefix("re:"))]
    return [glob for glob in found if glob is not None]


def _glob(text: str) -> str | None:
    """Matched from the start, as compressed-tensors does, and to the end only with a `$`."""
    body, ends = text.removeprefix("^").removesuffix("$"), text.endswith("$")
    found, at = "", 0
    while at < len(body):
        token = _TOKEN.match(body, at)
        if token is None:
            return None
        kind = token.lastgroup
        found += {"any": "*", "one": "?"}.get(kind or "", token[kind or 0])
        at = token.end()
    return re.sub(r"\*+", "*", found if ends else f"{found}*")
