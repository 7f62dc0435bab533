"""What is refused, and in which words: the text of docs/validation.md (`make docs` writes it)."""

from itertools import groupby

import yaml

from firsttoken.api.example import BASES, Example
from firsttoken.api.examples_change import CHANGE
from firsttoken.api.examples_engine import ENGINE
from firsttoken.api.examples_model import IDENTITY, MODEL, WORKLOAD
from firsttoken.api.examples_pod import ENVIRONMENT, POD, RECORDS
from firsttoken.api.extra_args import GROUPS
from firsttoken.api.validation import MAX_TEXT_CHARACTERS, check_object
from firsttoken.api.validation_examples import rejected

_SECTIONS = (
    ("The object", IDENTITY),
    ("Model", MODEL),
    ("Accelerator, workload, SLOs, layout", WORKLOAD),
    ("Engine and measurement", ENGINE),
    ("Tuning, rollout, evaluation, scaling, routing, inspection", CHANGE),
    ("Pod template", POD),
    ("Environment and resources", ENVIRONMENT),
    ("Accelerator profiles and revisions", RECORDS),
)


def _flags() -> str:
    groups = ((group.why, sorted((*group.flags, *group.switches))) for group in GROUPS)
    return "\n".join(f"- {why}: {', '.join(f'`{flag}`' for flag in flags)}" for why, flags in groups)


_INTRODUCTION = f"""\
# What is refused, and why

<!-- Made by `make docs`; don't edit. -->

Each row is a rule of `crds/*.yaml`, a manifest that breaks it and what is said about it. `kubectl apply` says it, from
the API server; `firsttoken validate -f FILE` says the same without a cluster (exit code 2), with the line in the file.
Every row is a test of both: `tests/api/test_rows.py` and `e2e/validation/test_validation.py`.

A message about a field's type, bounds or allowed values is Kubernetes' own. Where several flags or variables break the
same rule, the message names one of them. Two things differ between the two ways: the API server stops at
unknown fields, and doesn't evaluate rules while a required field, a type or a length is wrong, where
`firsttoken validate` says all it can at once.

**Size.** Texts, lists and maps have bounds, so that an InferenceService stays far below etcd's limit of 1.5 MiB, and so
do the revisions that hold copies of it: `tests/api/test_size.py` computes the largest one. A file for
`firsttoken validate` may have {MAX_TEXT_CHARACTERS // 1024} Ki characters.

**extraArgs** may set the flags below and nothing else (`docs/decisions/0009-extra-args-are-allow-listed.md`):

{_flags()}

**What no rule can say.** Whether an AcceleratorProfile, a Secret or a ConfigMap exists, whether a time zone is known,
whether a plan fits: the conditions of the service tell.

The manifests below are merged into the smallest valid one, for an InferenceService:

```yaml
{BASES["InferenceService"].rstrip()}
```
"""


def text() -> str:
    """The whole page."""
    return _INTRODUCTION + "".join(_section(title, rows) for title, rows in _SECTIONS)


def message(example: Example) -> str:
    """What is said about `example` at its path."""
    if example.change:  # a change is judged by the API server only
        return "Invalid value: a revision is a record and can't be changed: edit the InferenceService"
    return next(c.message for c in check_object(rejected(example)) if c.path == example.path)


def _section(title: str, rows: tuple[Example, ...]) -> str:
    out = f"\n## {title}\n"
    for kind, group in groupby(rows, key=lambda row: row.kind):
        if kind != "InferenceService":
            out += f"\nFor {kind}:\n"
        out += "\n| Rule | Rejected | Message |\n|---|---|---|\n"
        out += "".join(_row(row) for row in group)
    return out


def _row(example: Example) -> str:
    patch = example.shown or example.patch
    lines = "<br>".join(f"`{_indented(line)}`" for line in _flowed(patch).splitlines())
    note = " (a change of an existing object)" if example.change else ""
    said = f"`{example.path}`: {_cell(message(example))}"
    return f"| {_cell(example.words)}{note}<br>`{example.id}` | {lines} | {said} |\n"


def _flowed(patch: str) -> str:
    """`patch` as block YAML, as people write it, unless it is only hinted at."""
    if "…" in patch:
        return patch.rstrip()
    return yaml.safe_dump(yaml.safe_load(patch), sort_keys=False, allow_unicode=True, width=10**6).rstrip()


def _indented(line: str) -> str:
    # Markdown drops spaces at the start of code; a no-break space stays.
    bare = line.lstrip(" ")
    return "\u00a0" * (len(line) - len(bare)) + _cell(bare)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
