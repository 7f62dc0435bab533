"""A model made on the spot: a Llama of 3 million random weights that answers with random letters.

It is for tests of everything around the model. A token is a byte, so a prompt has as many tokens as bytes. Made by the
standard library alone, and the same bytes every time.
"""

from __future__ import annotations

import json
import random
import sys
from array import array
from collections.abc import Iterator
from typing import Any

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD = 256, 4, 4, 2, 64, 688
SPECIAL = ("<s>", "</s>")
VOCABULARY = 320  # 256 bytes and the two above, padded to a multiple of 64
MAX_LENGTH = 2048
LETTERS = b" abcdefghijklmnopqrstuvwxyz"
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "intermediate_size": FEED_FORWARD,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": MAX_LENGTH,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "dtype": "float32",
}


def files(seed: int = 0) -> dict[str, bytes]:
    """The files of the model's directory by name, as `vllm serve` reads them."""
    documents = {
        "config.json": CONFIG,
        "generation_config.json": {"bos_token_id": 256, "eos_token_id": 257},
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL[0],
            "eos_token": SPECIAL[1],
            "model_max_length": MAX_LENGTH,
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE,
        },
    }
    made = {name: json.dumps(document, ensure_ascii=False).encode() for name, document in documents.items()}
    return {**made, "model.safetensors": _safetensors(random.Random(seed))}  # noqa: S311 - no secret


def _byte_characters() -> list[str]:
    """The character by which byte-level BPE writes each byte: itself where it can be printed, else from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _tokenizer() -> dict[str, Any]:
    vocabulary = {character: byte for byte, character in enumerate(_byte_characters())}
    special = [
        {"id": 256 + n, "content": text, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for n, text in enumerate(SPECIAL)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "unk_token": None, "byte_fallback": False},
    }


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        yield f"{name}.input_layernorm.weight", (HIDDEN,)
        yield f"{name}.post_attention_layernorm.weight", (HIDDEN,)
        for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            yield f"{name}.self_attn.{part}_proj.weight", (heads * HEAD_DIM, HIDDEN)
        yield f"{name}.self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield f"{name}.mlp.gate_proj.weight", (FEED_FORWARD, HIDDEN)
        yield f"{name}.mlp.up_proj.weight", (FEED_FORWARD, HIDDEN)
        yield f"{name}.mlp.down_proj.weight", (HIDDEN, FEED_FORWARD)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


def _weights(name: str, shape: tuple[int, ...], chance: random.Random) -> array[float]:
    if len(shape) == 1:
        return array("f", [1.0] * shape[0])
    if name == "lm_head.weight":  # zeros never win against 27 rows as large as these: letters only, no end of text
        letters = set(LETTERS)
        rows = (chance.gauss(0.0, 2.0) if row in letters else 0.0 for row in range(shape[0]) for _ in range(shape[1]))
        return array("f", rows)
    return array("f", (chance.gauss(0.0, 0.06) for _ in range(shape[0] * shape[1])))


def _safetensors(chance: random.Random) -> bytes:
    """The safetensors format: length of the header, the header in JSON, the tensors one after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, shape in _shapes():
        weights = _weights(name, shape, chance)
        if sys.byteorder == "big":
            weights.byteswap()
        start = len(data)
        data += weights.tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(data)
