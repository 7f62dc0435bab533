"""Reading single facts from a config.json, whatever key its family keeps them under."""

from typing import Any

from firsttoken.planning.hf_bounds import MOST, refuse
from firsttoken.planning.hf_families import KEYS, Config, Family, dig
from firsttoken.planning.refusal import InfeasibleError


class Fields:
    """Values by our names: as the config says, else as transformers assumes for the family."""

    def __init__(self, config: Config, text: Config, family: Family) -> None:
        self.config, self.text, self.family = config, text, family

    def number(self, name: str) -> int | None:
        """A whole number above 0, None if there is none. Raises InfeasibleError for anything else."""
        key, value = find(self.text, name)
        if value is None:
            # `null` is a value where it says "none": no window, queries that are projected directly.
            absent = key is None or name not in ("sliding_window", "q_lora_rank")
            value = self.family.defaults.get(name) if absent else None
        if value is None and name == "intermediate_size":
            value = self._feed_forward()
        if value is None or value == 0:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 or not 0 < value <= MOST:
            raise refuse(key or name, value, "not a number above 0")
        return int(value)

    def needed(self, name: str) -> int:
        """A number that is known to be there."""
        value = self.number(name)
        if value is None:
            raise InfeasibleError("UnknownModel", f"config.json: {name} is missing")
        return value

    def kv_heads(self) -> int | None:
        """KV heads of a layer; None: as many as query heads."""
        return self.family.kv_heads(self.text, self.needed("num_attention_heads")) or self.number("num_key_value_heads")

    def tied(self) -> bool:
        """Whether input and output embedding are one matrix."""
        _, value = find(self.text, "tie_word_embeddings")
        return self.family.tied if value is None else bool(value)

    def alibi(self) -> bool:
        """Whether positions are by ALiBi."""
        key = self.family.alibi
        return key == "always" or (bool(key) and dig(self.text, key) is True)

    def _feed_forward(self) -> int | None:
        times = self.family.feed_forward
        if isinstance(times, str):
            found = self.text.get(times, 4)
            times = found if isinstance(found, int) else 4
        hidden = self.number("hidden_size")
        return times * hidden if times and hidden else None


def find(text: Config, name: str) -> tuple[str | None, Any]:
    """The key that holds a fact, and its value: the first that is not null, else one that is, else (None, None)."""
    there = [(key, dig(text, key)) for key in KEYS[name]]
    return next(
        ((key, value) for key, value in there if value is not None),
        (next((key for key, _ in there if key in text), None), None),
    )


def count(text: Config, key: str, otherwise: int) -> int:
    """A whole number above 0 that only some families have; 0 and what is no number are as good as none.

    Raises InfeasibleError for numbers below 0 or above MOST.
    """
    value = text.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value == 0:
        return otherwise
    if not 0 < value <= MOST:
        raise refuse(key, value, f"not a number from 0 to {MOST}")
    return value
