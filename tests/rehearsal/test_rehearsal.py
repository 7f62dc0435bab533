"""Whole rehearsals: what the operator does to a fleet and to its users while the world does things to both."""

import pytest

from firsttoken.rehearsal.errors import NotRehearsedError, WorldError
from firsttoken.rehearsal.serving import Fate
from rehearsal.cases import EDIT, at, p95, play, reasons, revisions, service, whole

pytestmark = pytest.mark.timeout(600)  # the first run compiles

ROLLOUT = {"at": "3m", "edit": {"spec": EDIT}}


def test_a_quiet_service_comes_up_and_then_nothing_happens() -> None:
    found = play()
    assert reasons(found, "world") == ["Applied"]
    assert reasons(found, "cluster") == ["PodsReady", "PodsReady"]
    assert reasons(found, "traffic") == ["Opened"]
    told = [e for e in found.entries if e.who == "operator"]
    assert told[-1].reason == "Measured"  # the first round of questions to Prometheus
    operator = told[:-1]
    assert operator[0].reason == "RevisionCreated"
    assert operator[-1].at < 40  # engines start in 30 s
    assert [e.message.split(":")[0] for e in operator if e.reason == "Serving"] == ["Ready", "Available"]
    assert found.passed
    assert found.lost == found.fates[Fate.REFUSED] == 0
    assert found.fates[Fate.SENT] == sum(c.requests for c in whole(found)) == pytest.approx(2 * 570, rel=0.1)


def test_requests_come_only_when_the_service_is_ready_for_the_first_time() -> None:
    found = play()
    opened = at(found, "Opened")
    assert opened == at(found, "Serving", "Ready")
    assert found.fates[Fate.UNSENT] == pytest.approx(2 * opened, rel=0.4)


def test_an_edit_moves_all_requests_when_the_new_revision_is_there_and_loses_none() -> None:
    found = play(ROLLOUT)
    old, new = revisions(found)
    assert found.passed
    assert found.lost == 0
    created, moved = at(found, "RevisionCreated", new), at(found, "WeightsWritten", f"{new} 100 %")
    assert 180 <= created < 181
    assert moved - created >= 30  # capacity first
    gone = at(found, "Deleted", f"Deployment/{old}")
    assert gone - moved > 19  # the drain time-out; times in the status are whole seconds
    assert not [c for c in whole(found) if c.revision == old and c.start > gone]
    assert not [c for c in whole(found) if c.revision == new and c.end < moved]


def test_a_router_in_front_changes_nothing_of_that() -> None:
    given = service(engine={"pins": {"prefixCaching": True}})
    found = play({"at": "3m", "edit": {"spec": {"model": {"maxModelLength": 4096}}}}, given=given)
    assert any("router" in e.message for e in found.entries if e.reason == "PodsReady")
    assert len(revisions(found)) == 2
    assert found.passed
    assert found.lost == 0


def test_lost_pods_take_their_requests_and_the_others_wait_until_new_ones_are_there() -> None:
    found = play({"at": "4m", "losePods": {"count": 1}}, requestsPerSecond=10, startup="90s")
    assert found.pods_lost == 1
    assert found.fates[Fate.BROKEN] == found.lost > 0
    assert found.passed
    assert "1 of 2" in next(e.message for e in found.entries if e.reason == "PodsNotReady")
    back = [e.at for e in found.entries if e.reason == "PodsReady" and e.at > 240]
    assert back == [pytest.approx(240 + 90)]
    assert p95(found, 240, 330) > 1.05 * p95(found, 120, 240)
    assert p95(found, 360, 600) < 1.05 * p95(found, 120, 240)


def test_with_the_last_pod_lost_users_get_503_until_another_is_ready() -> None:
    found = play({"at": "4m", "losePods": {"count": 2}})
    assert found.fates[Fate.UNSERVED] == pytest.approx(2 * 30, rel=0.4)
    assert "the world asked" not in next(e.message for e in found.entries if e.reason == "PodsLost")
    assert "Unserved" in reasons(found, "traffic")
    assert "NoReplicaReady" in reasons(found, "operator")
    assert found.ready


def test_where_fewer_pods_are_ready_than_the_world_takes_the_timeline_says_so() -> None:
    found = play({"at": "4m", "losePods": {"count": 99}})
    assert found.pods_lost == 2
    said = next(e.message for e in found.entries if e.reason == "PodsLost")
    assert said.endswith("(all that were ready; the world asked for 99)")


def test_where_gpus_are_missing_the_old_revision_goes_on_and_the_condition_says_what_is_missing() -> None:
    found = play(ROLLOUT, nodes=[{"gpus": 2}])
    assert "PodsPending" in reasons(found, "cluster")
    assert "2 × nvidia.com/gpu" in next(e.message for e in found.entries if e.reason == "MissingGPUs")
    assert len(revisions(found)) == 1
    assert (found.ready, found.passed, found.lost) == (False, False, 0)


def test_a_node_that_is_lost_leaves_what_the_others_have_room_for() -> None:
    found = play({"at": "3m", "loseNode": {"name": "node-1", "for": "3m"}}, nodes=[{"gpus": 1, "count": 2}])
    assert found.pods_lost == 1
    pending = next(e for e in found.entries if e.reason == "PodsPending")
    assert "1 Insufficient nvidia.com/gpu" in pending.message
    assert at(found, "NodeBack") == pytest.approx(360)
    assert found.passed


def test_slow_nodes_and_more_traffic_are_felt_while_they_last() -> None:
    found = play(
        {"at": "2m", "slowNode": {"name": "node-1", "factor": 3, "for": "2m"}},
        {"at": "6m", "traffic": {"promptTokens": 2, "for": "2m"}},
    )
    quiet, slow, long = p95(found, 60, 120), p95(found, 120, 240), p95(found, 360, 480)
    assert slow > 2 * quiet
    assert long > 1.5 * quiet
    assert p95(found, 300, 360) < 1.2 * quiet
    rates = {c.start: c.requests for c in whole(found)}
    more = {c.start: c.requests for c in whole(play({"at": "6m", "traffic": {"rate": 3, "for": "2m"}}))}
    assert more[360] > 2 * rates[360]
    assert [more[t] for t in (60, 120, 180, 240, 300)] == [rates[t] for t in (60, 120, 180, 240, 300)]


def test_of_events_that_slow_a_node_at_once_the_slowest_counts_and_none_ends_another() -> None:
    found = play(
        {"at": "2m", "slowNode": {"name": "node-1", "factor": 3, "for": "5m"}},
        {"at": "3m", "slowNode": {"name": "node-1", "factor": 6, "for": "1m"}},
        {"at": "5m", "slowNode": {"name": "node-1", "factor": 1.5, "for": "1m"}},
    )
    slow = [(e.at, e.message) for e in found.entries if e.reason == "NodeSlow"]
    assert slow[2] == (240, "steps on node-1 take 3 times as long now")
    assert len(slow) == 4  # nothing changed when the mildest was over
    assert [e.at for e in found.entries if e.reason == "NodeFast"] == [420]
    quiet = p95(found, 60, 120)
    assert 0.8 * p95(found, 180, 240) > p95(found, 360, 420) > 2 * quiet
    assert p95(found, 480, 600) < 0.6 * p95(found, 360, 420)


def test_a_node_that_is_lost_twice_is_back_when_both_are_over() -> None:
    found = play(
        {"at": "3m", "loseNode": {"name": "node-1", "for": "4m"}},
        {"at": "4m", "loseNode": {"name": "node-1", "for": "1m"}},
        nodes=[{"gpus": 1, "count": 2}],
    )
    assert [e.at for e in found.entries if e.reason == "NodeBack"] == [420]
    assert at(found, "PodsReady", "2 of 2") < 180
    assert [e.at for e in found.entries if e.reason == "PodsReady" and "2 of 2" in e.message][-1] == 450


def test_a_burst_comes_at_once() -> None:
    counts = {c.start: c.requests for c in whole(play())}
    with_burst = {c.start: c.requests for c in whole(play({"at": "5m", "burst": {"requests": 40}}))}
    assert with_burst[300] == counts[300] + 40


def test_nothing_stops_a_bad_version_yet_and_the_report_says_which_it_was() -> None:
    bad = {
        "at": "3m",
        "badVersion": {"where": {"engine": {"pins": EDIT["engine"]["pins"]}}, "prefill": 4, "errors": 0.1},
    }
    found = play(bad, ROLLOUT)
    _, new = revisions(found)
    assert found.bad == (new,)
    ours = [c for c in whole(found) if c.revision == new]
    assert (
        found.fates[Fate.ERROR]
        == sum(c.lost for c in ours)
        == pytest.approx(0.1 * sum(c.requests for c in ours), rel=0.4)
    )
    assert p95(found, 480, 600) > 3 * p95(found, 60, 180)
    assert found.ready
    assert not found.passed
    other = {"at": "3m", "badVersion": {"where": {"engine": {"pins": {"tokenBudget": 1}}}, "prefill": 4}}
    assert play(other, ROLLOUT).bad == ()


def test_longer_prompts_than_a_revision_takes_are_refused_and_not_lost() -> None:
    given = service(model={"maxModelLength": 4096})
    longer = {"at": "5m", "traffic": {"promptTokens": 1.5}}
    found = play({"at": "3m", "edit": {"spec": {"model": {"maxModelLength": 1400}}}}, longer, given=given)
    assert found.fates[Fate.REFUSED] > 0
    assert found.lost == 0


def test_what_others_do_to_objects_is_put_right_and_users_feel_nothing_of_it() -> None:
    found = play(
        {"at": "2m", "deleteObject": {"kind": "ConfigMap", "name": "chat-gateway-routes"}},
        {
            "at": "4m",
            "editObject": {
                "kind": "Service",
                "name": "chat",
                "patch": {"spec": {"selector": {"firsttoken.dev/role": "x"}}},
            },
        },
        {"at": "6m", "clockJump": {"seconds": -3600}},
        {"at": "8m", "clockJump": {"seconds": 7200}},
    )
    assert [e.message for e in found.entries if e.reason == "Applied" and e.who == "operator"] == ["Service/chat"]
    assert found.passed
    assert found.lost == 0


def test_live_settings_reach_engines_that_serve_and_come_back_with_the_operator() -> None:
    """Somebody edits them while the operator is away: within a minute they are in force, and a second after it is back
    they are not any more."""
    small = '{"generation": 2, "default": {"tokenBudget": 48, "decodeCap": 32, "longPrefillThreshold": 0}}'
    found = play(
        {"at": "2m", "killOperator": {"afterWrites": 0, "downFor": "4m"}},
        {
            "at": "2m",
            "editObject": {"kind": "ConfigMap", "name": "*-live", "patch": {"data": {"settings.json": small}}},
        },
    )
    quiet = p95(found, 60, 120)
    assert p95(found, 120, 180) < 1.5 * quiet  # the kubelet has not looked yet
    assert p95(found, 180, 360) > 3 * quiet
    assert p95(found, 420, 600) < 1.5 * quiet
    assert any("-live" in e.message for e in found.entries if e.reason == "Applied" and e.who == "operator")
    assert found.lost == 0


def test_equal_seeds_give_equal_rehearsals() -> None:
    first, again, other = (play(ROLLOUT, seed=seed) for seed in (1, 1, 2))
    assert (first.entries, first.cells, first.status) == (again.entries, again.cells, again.status)
    assert first.cells != other.cells


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({"at": "10m", "burst": {"requests": 1}}, r"events\[0\].at: 10m is not before the end: give a longer duration"),
        ({"losePods": {"role": "decode"}}, r"events\[0\].losePods: no ready pod has role decode; .* gateway, serve"),
        ({"slowNode": {"name": "x", "factor": 2}}, r"events\[0\].slowNode.name: there is no node x; known are node-1"),
        ({"deleteObject": {"kind": "Deployment", "name": "x"}}, r"no Deployment is named x; there are: chat-"),
        ({"edit": {"spec": {"accelerator": {"maxCount": 0}}}}, r"events\[0\].edit.spec: the API server refuses it"),
    ],
)
def test_what_can_not_happen_is_said_in_one_line(event: dict[str, object], says: str) -> None:
    with pytest.raises(WorldError, match=says) as raised:
        play({"at": "1m", **event})
    assert "\n" not in str(raised.value)


def test_a_split_of_prefill_and_decode_is_refused() -> None:
    given = service(layout={"mode": "Disaggregated"}, scaling=None, accelerator={"maxCount": 4})
    with pytest.raises(NotRehearsedError, match=r"spec.layout.mode"):
        play(given=given)


def test_replicas_over_several_nodes_are_refused_in_one_line() -> None:
    given = service(
        model={"uri": "hf://deepseek-ai/DeepSeek-V3"}, scaling=None,
        accelerator={"type": "nvidia-h100-80gb", "maxCount": 16},
    )  # fmt: skip
    with pytest.raises(NotRehearsedError, match="LeaderWorkerSet"):
        play(given=given)
