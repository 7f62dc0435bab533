"""Every question the operator asks Prometheus: about the whole fleet at once, the same number whatever its size.

Asked over a range with one step a block, so that one answer holds a window's blocks. Counters are asked by `increase`,
which bridges restarts; `resets` tells of them, once of the whole window: one between two blocks is in neither. Engines
are counted by their scrapes, as a pod that was there for half a block is half an engine. What each series means:
contract.py.
"""

from dataclasses import dataclass

# Labels that the scrape gives (DESIGN §4).
NAMESPACE, SERVICE, REVISION, ROLE = "namespace", "firsttoken_service", "firsttoken_revision", "role"
_PART = f"{NAMESPACE}, {SERVICE}, {REVISION}, {ROLE}"


@dataclass(frozen=True)
class Question:
    """A name, PromQL in which `$span` stands for a block's length, and the label that tells its answers apart.

    `whole`: it is asked once, of the whole window, and its answer is told with the last block.
    """

    name: str
    text: str
    label: str = ""
    whole: bool = False

    def over(self, block: float, blocks: int) -> str:
        """The PromQL for that many blocks of `block` seconds."""
        return self.text.replace("$span", f"{round((blocks if self.whole else 1) * block * 1000)}ms")


def _increase(name: str, series: str, label: str = "") -> Question:
    by = f"{_PART}, {label}" if label else _PART
    return Question(name, f"sum by ({by}) (increase({series}[$span]))", label)


def _gauge(name: str, aggregate: str, series: str, label: str = "") -> Question:
    by = f"{_PART}, {label}" if label else _PART
    return Question(name, f"{aggregate} by ({by}) ({aggregate}_over_time({series}[$span]))", label)


_BUCKET, _PHASE = "prompt_tokens", "phase"
_SCRAPES = "count_over_time(firsttoken_token_budget[$span])"

QUESTIONS = (
    _increase("prefill_seconds", 'firsttoken_ttft_stage_seconds_sum{stage="prefill"}', _BUCKET),
    _increase("prefills", 'firsttoken_ttft_stage_seconds_count{stage="prefill"}', _BUCKET),
    _increase("prompts", "firsttoken_prompt_tokens_count", _BUCKET),
    _increase("prompt_tokens", "firsttoken_prompt_tokens_sum", _BUCKET),
    _increase("cached_tokens", "firsttoken_cached_prompt_tokens_total", _BUCKET),
    _increase("tpot_seconds", "firsttoken_tpot_seconds_sum", _BUCKET),
    _increase("tpots", "firsttoken_tpot_seconds_count", _BUCKET),
    _increase("kv_tokens", "firsttoken_request_kv_tokens_sum", _BUCKET),
    _increase("kv_requests", "firsttoken_request_kv_tokens_count", _BUCKET),
    _increase("step_tokens", "firsttoken_step_tokens_sum", _PHASE),
    _increase("steps", "firsttoken_step_tokens_count", _PHASE),
    _increase("preemptions", "firsttoken_kv_allocation_failures_total"),
    _gauge("running", "avg", "firsttoken_running_requests", _PHASE),
    _gauge("least_budget", "min", "firsttoken_token_budget"),
    _gauge("most_budget", "max", "firsttoken_token_budget"),
    _gauge("least_generation", "min", "firsttoken_settings_generation"),
    _gauge("most_generation", "max", "firsttoken_settings_generation"),
    Question("engines", f"sum by ({_PART}) ({_SCRAPES}) / max by ({_PART}) ({_SCRAPES})"),
    Question("resets", f"sum by ({_PART}) (resets(firsttoken_step_tokens_count[$span]))", whole=True),
)
