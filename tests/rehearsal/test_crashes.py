"""The operator dies between any two of its writes, and whatever happens, no request is lost but with lost pods."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from firsttoken.rehearsal.result import Rehearsal
from firsttoken.rehearsal.serving import Fate
from rehearsal.cases import EDIT, play, reasons, revisions

pytestmark = pytest.mark.timeout(900)  # the first run compiles

SHORT: dict[str, Any] = {"duration": "4m", "startup": "10s", "requestsPerSecond": 1}
ROLLOUT = {"at": "1m", "edit": {"spec": EDIT}}


def end(found: Rehearsal) -> tuple[object, ...]:
    """What must not depend on when the operator died."""
    plan, conditions = found.status["plan"], {c["type"]: (c["status"], c["reason"]) for c in found.status["conditions"]}
    return found.passed, found.lost, revisions(found), found.status["revision"]["stable"], plan, conditions


def test_dying_anywhere_in_a_rollout_leads_to_the_same_end() -> None:
    """From the record of the new revision to the last object of the old one, after every third write (for the time it
    takes; tests/reconcile has the others, without what users feel).
    """
    undisturbed = play(ROLLOUT, **SHORT)
    assert undisturbed.passed
    for writes in range(0, 100, 3):
        kill = {"at": "1m", "killOperator": {"afterWrites": writes, "downFor": "10s"}}
        found = play(kill, ROLLOUT, **SHORT)
        assert end(found) == end(undisturbed), writes
        if "OperatorKilled" not in reasons(found):
            break
    assert 20 < writes < 99


times = st.integers(0, 230).map(lambda s: f"{s}s")
harmless = st.one_of(
    st.builds(
        lambda b: {"edit": {"spec": {"engine": {"pins": {"tokenBudget": b}}}}}, st.sampled_from([256, 512, 1024])
    ),
    st.builds(lambda n: {"edit": {"spec": {"scaling": {"replicas": n}}}}, st.integers(1, 2)),
    st.builds(lambda f: {"traffic": {"rate": f, "for": "20s"}}, st.sampled_from([0.2, 3.0])),
    st.builds(lambda n: {"burst": {"requests": n}}, st.integers(1, 30)),
    st.builds(lambda n: {"killOperator": {"afterWrites": n, "downFor": "7s"}}, st.integers(0, 20)),
    st.builds(lambda s: {"clockJump": {"seconds": s}}, st.sampled_from([-86400, -30, 30, 86400])),
    st.just({"deleteObject": {"kind": "PodDisruptionBudget", "name": "*"}}),
    st.just({"badVersion": {"prefill": 2}}),
)
events = st.lists(st.tuples(times, harmless).map(lambda pair: {"at": pair[0], **pair[1]}), max_size=5)


# A rehearsal takes a second or two, so a failing one is shown as it was found.
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(what=events, lost=st.booleans())
def test_no_request_is_lost_without_a_lost_pod_and_none_is_counted_twice(
    what: list[dict[str, Any]], lost: bool
) -> None:
    what = [e for e in what if "deleteObject" not in e or int(e["at"][:-1]) > 0]
    loss = [{"at": "100s", "losePods": {"count": 1}}] if lost else []
    found = play(*what, *loss, **SHORT)
    assert sum(found.fates.values()) == found.fates[Fate.UNSENT] + sum(
        c.requests for c in found.cells if c.bucket == "all"
    )
    assert sum(c.requests for c in found.cells if c.bucket == "all") == sum(
        c.requests for c in found.cells if c.bucket != "all"
    )
    assert sum(c.served + c.refused + c.lost for c in found.cells) == sum(c.requests for c in found.cells)
    if not lost:
        assert found.lost == 0
    assert found.fates[Fate.CUT_OFF] == 0
