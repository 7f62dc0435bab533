"""`status`: what is said about fetched objects, and how it looks. No cluster here; e2e has one."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from cli import samples
from firsttoken.api.service import DrainingRevision, PlanStatus, RevisionStatus
from firsttoken_operator.cli.status_report import age, left_alone, report
from firsttoken_operator.cli.status_view import change, overview, view

NOW = datetime.fromisoformat(samples.NOW)


def shown(seen: Any, width: int = 100) -> str:
    console = Console(width=width, markup=False, highlight=False, emoji=False, color_system=None)
    with console.capture() as captured:
        console.print(view(seen, NOW))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def test_a_service_that_serves_is_ready_and_tells_what_and_why() -> None:
    told = [samples.event("2026-05-01T10:00:00Z", "Serving", "Ready: it serves")]
    seen = report(samples.stored(samples.ready_status()), [samples.record(samples.STABLE, "first revision")], told)
    text = shown(seen)
    assert seen.ready
    for part in (
        "serving/kb-assistant: Ready",
        "http://kb-assistant.serving.svc/v1",
        "Colocated, 8 GPUs",
        f"{samples.STABLE}  has all requests  first revision",
        "serve  8 of 8  nvidia-a100-40gb",
        "on: prompts share their first 480 tokens",
        "2h   Normal  Serving  Ready: it serves",
    ):
        assert part in text


def test_S2_ready_about_an_older_spec_is_not_ready() -> None:
    seen = report(samples.stored(samples.ready_status(), generation=4))
    assert (seen.ready, seen.reason) == (False, "SpecChanged")


def test_a_service_nobody_has_looked_at_says_that_the_operator_may_not_run() -> None:
    seen = report(samples.stored(None))
    assert (seen.ready, seen.reason) == (False, "NotSeen")
    assert "whether the operator runs" in shown(seen)


def test_a_service_on_its_way_out_is_not_ready() -> None:
    seen = report(samples.stored(samples.ready_status(), deletionTimestamp=samples.NOW))
    assert (seen.ready, seen.reason) == (False, "Deleting")


def test_a_new_revision_beside_the_old_one() -> None:
    old = DrainingRevision(name="kb-assistant-99999999", since="2026-05-01T11:59:30Z")
    revision = RevisionStatus(desired=samples.NEXT, stable=samples.STABLE, draining=[old])
    records = [samples.record(samples.NEXT, 'spec.model.revision: default → "v2"')]
    seen = report(samples.stored(samples.ready_status(revision=revision)), records)
    assert [(r.name, r.part) for r in seen.revisions] == [
        (samples.STABLE, "serving"),
        (samples.NEXT, "starting"),
        ("kb-assistant-99999999", "draining"),
    ]
    line = next(line for line in shown(seen, 120).splitlines() if samples.NEXT in line)
    assert line.split("  ")[-1].strip() == 'spec.model.revision: default → "v2"'
    assert "starts, has no requests yet" in line
    assert "finishes its streams, then goes (for 30s)" in shown(seen, 120)
    assert seen.wire()["revisions"][2]["since"] == old.since


def test_a_canary_shows_both_shares() -> None:
    revision = RevisionStatus(desired=samples.NEXT, stable=samples.STABLE, canary_weight=10)
    text = shown(report(samples.stored(samples.ready_status(revision=revision))))
    assert "has 90 % of requests" in text
    assert "canary, has 10 % of requests" in text


def test_what_was_not_planned_is_not_shown() -> None:
    status = samples.ready_status(plan=None, layout=None, revision=None, conditions=[])
    text = shown(report(samples.stored(status)))
    for heading in ("Layout", "Endpoint", "Revisions", "Replicas", "Why it is planned", "Last events"):
        assert heading not in text


def test_a_service_that_was_never_rendered_has_no_endpoint() -> None:
    no = samples.condition("Available", "False", "Infeasible", "it doesn't fit")
    status = samples.ready_status(conditions=[no], plan=None, revision=RevisionStatus())
    assert report(samples.stored(status)).endpoint is None
    serves_without_plan = samples.ready_status(plan=None)
    assert report(samples.stored(serves_without_plan)).endpoint == status.endpoint


def test_events_of_an_earlier_object_of_the_same_name_are_not_shown_and_only_the_last_are() -> None:
    told = [samples.event(f"2026-05-01T11:0{n}:00Z", f"Reason{n}", "m") for n in range(8)]
    told.append(samples.event("2026-05-01T11:59:00Z", "Other", "m", involvedObject={"uid": "another"}))
    seen = report(samples.stored(samples.ready_status()), (), list(reversed(told)))
    assert [e.reason for e in seen.events] == [f"Reason{n}" for n in range(3, 8)]


def test_text_from_the_cluster_cannot_steer_the_terminal() -> None:
    told = [samples.event("2026-05-01T11:00:00Z", "Odd", "one\x1b[2Jtwo\nthree")]
    text = shown(report(samples.stored(samples.ready_status()), (), told))
    assert "\x1b" not in text
    assert r"one\x1b[2Jtwo three" in text


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    told = [samples.event("2026-05-01T10:00:00Z", "Serving", "Ready: " + "it serves " * 30)]
    seen = report(samples.stored(samples.ready_status()), [samples.record(samples.STABLE, "first")], told)
    assert max(map(len, shown(seen, width).splitlines())) <= width


def test_json_has_every_field_and_only_plain_values() -> None:
    wire = report(samples.stored(samples.ready_status()), (), [samples.event(samples.NOW, "A", "b")]).wire()
    assert json.loads(json.dumps(wire)) == wire
    assert wire["ready"] is True
    assert wire["canaryWeight"] is None
    assert wire["roles"][0]["readyReplicas"] == 8
    assert wire["events"] == [{"time": samples.NOW, "type": "Normal", "reason": "A", "message": "b", "count": 1}]


def test_the_table_has_one_unwrapped_line_a_service() -> None:
    waiting = PlanStatus(gpus=16, roles=[])
    reports = [
        report(samples.stored(samples.ready_status())),
        report(samples.stored(samples.ready_status(plan=waiting), name="z" * 40, generation=9)),
        report(samples.stored(None, name="new", creationTimestamp=None)),
    ]
    lines = overview(reports, NOW, all_namespaces=True)
    assert [line.split() for line in lines] == [
        ["NAMESPACE", "NAME", "READY", "LAYOUT", "GPUS", "REVISION", "REASON", "AGE"],
        ["serving", "kb-assistant", "True", "Colocated", "8", samples.STABLE, "Serving", "3d"],
        ["serving", "z" * 40, "False", "Colocated", "16", samples.STABLE, "SpecChanged", "3d"],
        ["serving", "new", "False", "-", "-", "-", "NotSeen", "-"],
    ]
    assert overview(reports, NOW, all_namespaces=False)[0].startswith("NAME ")


def test_watching_tells_the_verdict_and_new_events_and_nothing_twice() -> None:
    before = report(samples.stored(None))
    after = report(samples.stored(samples.ready_status()), (), [samples.event(samples.NOW, "Serving", "it serves")])
    assert change(before, after)[0].startswith("Ready: Serving: revision")
    assert change(before, after)[1:] == ["Normal event Serving: it serves"]
    assert change(after, after) == []


@pytest.mark.parametrize(
    ("timestamp", "said"),
    [
        ("2026-05-01T11:59:15Z", "45s"),
        ("2026-05-01T11:59:00Z", "60s"),
        ("2026-05-01T11:48:00Z", "12m"),
        ("2026-05-01T09:00:00Z", "3h"),
        ("2026-04-22T12:00:00Z", "9d"),
        ("2026-05-01T12:00:05Z", "0s"),
        ("2026-05-01T11:59:59", "1s"),
        ("soon", ""),
        (None, ""),
    ],
)
def test_ages_are_said_as_kubectl_says_them(timestamp: str | None, said: str) -> None:
    assert age(timestamp, NOW.astimezone(UTC)) == said


WROTE = {"manager": "kubectl", "operation": "Apply"}


def test_a_spec_that_nobody_looks_at_for_long_asks_for_the_operator() -> None:
    """The last write of the spec counts; the status and the scale are others' writes."""
    fields = [{**WROTE, "time": "2026-05-01T11:59:00Z"}, {**WROTE, "time": samples.NOW, "subresource": "status"}]
    text = shown(report(samples.stored(samples.ready_status(), generation=4, managedFields=fields)))
    assert "No operator has looked at it for 60s" in text
    assert "kubectl get deployments -A" in text
    for time in ("2026-05-01T11:59:30Z", samples.NOW):
        fresh = report(samples.stored(None, creationTimestamp=time))
        assert (fresh.reason, left_alone(fresh, NOW)) == ("NotSeen", "")
    old = report(samples.stored(None, creationTimestamp="2026-05-01T11:59:29Z"))
    assert "for 31s" in left_alone(old, NOW)


def test_a_spec_that_was_looked_at_asks_for_nothing() -> None:
    assert left_alone(report(samples.stored(samples.ready_status())), NOW) == ""


def test_a_failed_edit_shows_who_serves_with_how_many_replicas() -> None:
    broken = samples.ready_status(
        revision=RevisionStatus(desired=samples.STABLE, stable=samples.STABLE, stable_replicas={"serve": 8}),
        conditions=[
            samples.condition("Ready", "False", "UnknownModel", "spec.model.uri: nobody knows it"),
            samples.condition("Available", "True", "Serving", f"revision {samples.STABLE}: 9 of 9 pods ready"),
        ],
    )
    text = shown(report(samples.stored(broken)))
    assert f"{samples.STABLE}  has all requests (8 × serve)" in text
    assert "serve  8 of 8" in text
    assert f"revision {samples.STABLE}: 9 of 9 pods ready" in text


def test_a_cpu_service_has_devices() -> None:
    role = samples.ready_status().plan.roles[0].model_copy(update={"accelerator": "cpu"})  # type: ignore[union-attr]
    text = shown(report(samples.stored(samples.ready_status(plan=PlanStatus(gpus=2, roles=[role])))))
    assert "Colocated, 2 devices" in text
    assert "DEVICES EACH" in text
    assert "GPU" not in text
