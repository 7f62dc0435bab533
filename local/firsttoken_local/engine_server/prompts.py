"""Prompts as tokens. No tokenizer is there, so pieces of text are counted, the same each time.

A piece is a run of at most seven letters or digits, or one other character, with one blank before it: close to what
BPE makes of English (1.2 to 1.4 tokens a word). Prompts given as token ids are counted exactly.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

PIECE = re.compile(r"\s?\w{1,7}|\s?[^\w\s]|\s+")
QUARTERS = ("0-25", "25-50", "50-75", "75-100")  # of a prompt, percent
Pieces = list[str]


def text_pieces(text: str) -> Pieces:
    """The tokens of a text."""
    return PIECE.findall(text)


def chat_pieces(messages: Sequence[Mapping[str, Any]]) -> Pieces:
    """The tokens of a conversation: two beside each message's own (who speaks, the end), one that asks for an answer.

    Raises:
        ValueError: a message has no role, or content that is no text.
    """
    found: Pieces = []
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        if not isinstance(message.get("role"), str):
            raise ValueError("each message needs a role")
        found.append(f"<{message['role']}>")
        for part in parts:
            if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise ValueError("the simulated engine reads text only")
            found += text_pieces(part["text"])
        found.append("<end>")
    return [*found, "<assistant>"]


def _digest(*parts: str) -> int:
    joined = "\0".join(parts).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(joined, digest_size=8).digest(), "big") >> 1


def block_hashes(pieces: Sequence[str], block: int) -> list[int]:
    """One hash for each full block of ``block`` tokens, which stands for the block and all before it, as in vLLM."""
    found: list[int] = []
    for start in range(0, len(pieces) - block + 1, block):
        found.append(_digest(str(found[-1] if found else ""), *pieces[start : start + block]))
    return found


class PrefixWatch:
    """Finds prompts that could have hit the prefix cache but for something that changed before the shared part.

    That is: a block equals, at the same place, a block of an earlier prompt, while some block before it does not.
    Remembers the last ``most`` blocks.
    """

    def __init__(self, block: int, most: int = 65536) -> None:
        self._block, self._most = block, most
        self._seen: OrderedDict[tuple[int, int], None] = OrderedDict()

    def look(self, pieces: Sequence[str]) -> str | None:
        """Where a prompt's first changed block lies, in quarters of the prompt; None when nothing shared follows it."""
        blocks = range(0, len(pieces) - self._block + 1, self._block)
        keys = [(start, _digest(*pieces[start : start + self._block])) for start in blocks]
        known = [key in self._seen for key in keys]
        for key in keys:
            self._seen[key] = None
            self._seen.move_to_end(key)
        while len(self._seen) > self._most:
            self._seen.popitem(last=False)
        changed = known.index(False) if False in known else len(known)
        if not any(known[changed:]):
            return None
        return QUARTERS[changed * self._block * len(QUARTERS) // len(pieces)]
