"""Reading a config.json that came from the hub or from a file: what it may be, and what is wrong with it.

Whoever asked says whose it is: the words here follow a name and a verb or a colon ("... is no JSON", "...: no JSON").
"""

import json
from typing import Any

CONFIG = "config.json"
# ModelOpt keeps what belongs into quantization_config in a file of its own; vLLM reads it, too.
QUANTIZATION = "hf_quant_config.json"
MAX_BYTES = 4 * 2**20  # the largest published ones list every layer that is not quantised: 3 MB


class NotConfigError(ValueError):
    """What it is instead: a few words in one line."""


def json_object(body: bytes) -> dict[str, Any]:
    """The object in `body`. Raises NotConfigError for more than MAX_BYTES, and for what is no JSON object."""
    if len(body) > MAX_BYTES:
        raise NotConfigError(f"larger than {MAX_BYTES // 2**20} MiB")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NotConfigError(f"no JSON ({_first_line(error)})") from error
    if not isinstance(value, dict):
        raise NotConfigError("no JSON object")
    return value


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
