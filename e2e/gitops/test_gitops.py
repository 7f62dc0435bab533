"""Services kept in a repository, with a controller that applies them again and again beside the operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.gitops.conftest import Nodes, Repository
from e2e.gitops.player import INTERVAL_S, KINDS, TRACKING, Player, playing
from e2e.gitops.verdicts import Look, lies
from e2e.support import Object, Space, condition, inference_service
from e2e.test_convergence import essence, reconcile_count, wait_same

from firsttoken_local.operator import NAME, start_operator

REPLICAS = 2  # what maxCount 2 gives a model of one GPU
SHORT_S = 1.0  # between rounds, where the pace isn't the point
REPLICAS_FIELD = "/spec/scaling/replicas"
PROMPTS = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prompts"}, "data": {"system": "Be brief."}}


def web(length: int = 4096, name: str = "web", **spec: Any) -> Object:
    """A service by whose engines' arguments one sees which spec they were made from."""
    return inference_service(name, **{"model": {"maxModelLength": length}, **spec})


def versions(space: Space) -> dict[str, tuple[str, int, str]]:
    """UID, generation and resourceVersion of everything in the namespace, whoever made it."""
    return {
        f"{kind}/{o['metadata']['name']}": (
            o["metadata"]["uid"],
            o["metadata"].get("generation", 0),
            o["metadata"]["resourceVersion"],
        )
        for api_version, kind in KINDS
        for o in space.cluster.client.list(api_version, kind, space.name)
    }


def uids(space: Space, name: str) -> dict[str, str]:
    """Every child with its UID, pods included."""
    return {k: o["metadata"]["uid"] for k, o in space.children(name, made_by_us=False).items()}


def at_rest(space: Space, player: Player, name: str = "web") -> Look:
    """Wait until a service is Healthy and the operator has written nothing for a second."""
    look = player.settle(name, "Healthy")
    space.wait_quiet(name)
    return look


def assert_true(player: Player, name: str = "web") -> None:
    """Every verdict was true at its time, and Argo CD's and Flux's are the same."""
    assert [(look.generation, look.health, why) for look in player.of(name) if (why := lies(look, REPLICAS))] == []


@contextmanager
def stopped_operator(space: Space) -> Iterator[None]:
    """No operator inside the block; a new process after it."""
    space.cluster.processes.stop([NAME])
    try:
        yield
    finally:
        start_operator(space.cluster)


def wait_gone(space: Space, name: str) -> None:
    """Wait until a service and everything it had is gone."""
    space.wait(f"{name} to be gone", lambda: space.get("InferenceService", name) is None)
    space.wait(f"what {name} had to be gone", lambda: not uids(space, name))


def contested(space: Space) -> list[str]:
    return [e["message"] for e in space.cluster.client.list("v1", "Event", space.name) if e["reason"] == "Contested"]


def test_S5_health_says_progressing_until_the_pods_serve_and_nothing_else(
    space: Space, git: Repository, nodes: Nodes
) -> None:
    """From before the operator looked, over pods that wait for GPUs, to pods that serve."""
    nodes.close()
    with playing(space, git.folder, SHORT_S) as player:
        with stopped_operator(space):
            git.commit("web", PROMPTS, web())
            unseen = player.settle("web", "Progressing")
            assert (unseen.message, unseen.kstatus) == ("the operator has not looked at it yet", "InProgress")
        player.wait("the operator's word", lambda: "unschedulable" in player.of("web")[-1].message)
        player.wait_rounds(2)
        assert player.story("web") == [(1, "Progressing")]
        nodes.open()
        player.settle("web", "Healthy")
        assert player.story("web") == [(1, "Progressing"), (1, "Healthy")]
        assert_true(player)
        first, *later = (r for r in player.rounds if r.applied)
        assert {k: a.drift for k, a in first.applied.items()} == dict.fromkeys(
            ("InferenceService/web", "ConfigMap/prompts"), ("missing",)
        )
        assert [r for r in later if not r.in_sync] == []


def test_at_rest_neither_writes_what_the_other_wrote(space: Space, git: Repository) -> None:
    git.commit("web", PROMPTS, web())
    with playing(space, git.folder, SHORT_S) as player:
        at_rest(space, player)
        before, writes = versions(space), len(space.writes())
        rounds = player.wait_rounds(6)
        assert [r for r in rounds if not r.in_sync] == []
        assert versions(space) == before
        assert space.writes()[writes:] == []
        assert contested(space) == []
        marked = [k for k, o in space.children("web").items() if TRACKING in (o["metadata"].get("annotations") or {})]
        assert marked == [], "what carries the controller's mark would be pruned"


def test_an_operator_restarted_between_rounds_changes_nothing(space: Space, git: Repository) -> None:
    git.commit("web", PROMPTS, web())
    with playing(space, git.folder, SHORT_S) as player:
        at_rest(space, player)
        before, writes = versions(space), len(space.writes())
        with stopped_operator(space):
            player.wait_rounds(1)
        player.wait("a reconcile by the new process", lambda: reconcile_count(space.cluster) >= 1)
        player.wait_rounds(2)
        space.wait_no_writes(1.0)
        assert versions(space) == before
        assert space.writes()[writes:] == []
        assert player.story("web") == [(1, "Progressing"), (1, "Healthy")]


def test_at_the_pace_of_a_real_controller(space: Space, git: Repository) -> None:
    git.commit("web", web())
    with playing(space, git.folder) as player:
        player.wait_health("web", "Healthy")
        space.wait_quiet("web")
        before = versions(space)
        player.wait("three rounds", lambda: len(player.rounds) >= 3)
        first, *later = player.rounds[:3]
        assert first.applied["InferenceService/web"].drift == ("missing",)
        assert [r.in_sync for r in later] == [True, True]
        assert later[1].began - later[0].began >= INTERVAL_S
        assert versions(space) == before
        assert player.story("web") == [(1, "Progressing"), (1, "Healthy")]
        assert_true(player)


def test_S2_an_edit_is_healthy_only_with_the_revision_it_asks_for(space: Space, git: Repository, nodes: Nodes) -> None:
    """From before the operator has seen the edit, over new pods that wait for GPUs, to new pods that serve."""
    git.commit("web", web(4096))
    with playing(space, git.folder, SHORT_S) as player:
        old = at_rest(space, player).stable
        nodes.close()
        with stopped_operator(space):
            git.commit("web", web(8192))
            unseen = player.settle("web", "Progressing")
            assert (unseen.message, unseen.kstatus) == ("the operator has not seen this spec yet", "InProgress")
        player.wait("the operator's word", lambda: "unschedulable" in player.of("web")[-1].message)
        player.wait_rounds(2)
        assert (player.looks[-1].generation, player.looks[-1].stable) == (2, old), "the old revision serves on"
        nodes.open()
        assert player.settle("web", "Healthy").stable != old
        stages = [(1, "Progressing"), (1, "Healthy"), (2, "Progressing"), (2, "Healthy")]
        assert player.story("web") == stages
        assert_true(player)


def test_an_infeasible_edit_degrades_and_its_revert_restarts_nothing(space: Space, git: Repository) -> None:
    good = web()
    git.commit("web", good)
    with playing(space, git.folder, SHORT_S) as player:
        stable = at_rest(space, player).stable
        pods, written = uids(space, "web"), {k: v for k, v in versions(space).items() if not k.endswith("/web")}
        git.commit("web", web(model={"uri": "hf://meta-llama/Llama-3.1-70B-Instruct", "maxModelLength": 4096}))
        degraded = player.settle("web", "Degraded")
        assert "maxCount" in degraded.message
        assert (degraded.generation, degraded.stable) == (2, stable)
        assert (condition(degraded.service, "Available") or {})["status"] == "True", "the old revision serves on"
        player.wait_rounds(2)
        assert {look.health for look in player.of("web") if look.generation == 2} <= {"Progressing", "Degraded"}

        git.commit("web", good)
        healthy = player.settle("web", "Healthy")
        assert (healthy.generation, healthy.stable) == (3, stable)
        space.wait_no_writes(1.0)
        assert uids(space, "web") == pods
        assert {k: v for k, v in versions(space).items() if not k.endswith("/web")} == written, "children untouched"
        assert_true(player)


def test_a_spec_edited_by_hand_is_put_back_and_leaves_no_rollout(space: Space, git: Repository) -> None:
    git.commit("web", web())
    with playing(space, git.folder, SHORT_S) as player:
        stable = at_rest(space, player).stable
        before, there = essence(space.children("web"), history=False), uids(space, "web")
        with player.between_rounds():
            space.patch("infsvc/web", {"spec": {"model": {"maxModelLength": 8192}}})
        (corrected,) = player.wait_rounds(1)
        assert corrected.applied["InferenceService/web"].drift == ("spec.model.maxModelLength",)
        assert "kubectl-patch" in corrected.applied["InferenceService/web"].conflict
        assert space.service("web")["spec"]["model"]["maxModelLength"] == 4096

        assert player.settle("web", "Healthy").stable == stable
        space.wait_quiet("web")
        wait_same(space, "web", before, "nothing of the other revision to be left", history=False)
        rollout = condition(space.service("web"), "RolloutProgressing")
        assert rollout is None or rollout["status"] == "False"
        now = uids(space, "web")
        assert {k: now.get(k) for k in there} == there, "no pod was replaced"
        assert "Degraded" not in {look.health for look in player.of("web")}
        assert player.wait_rounds(1)[0].in_sync
        assert contested(space) == []


def test_S19_a_number_set_through_scale_survives_rounds_and_edits(space: Space, git: Repository) -> None:
    """With `ignoreDifferences` and RespectIgnoreDifferences (Argo CD) or `spec.ignore` (Flux): docs/gitops.md."""
    external: dict[str, Any] = {"scaling": {"mode": "External", "replicas": 1}}
    git.commit("web", web(accelerator={"maxCount": 4}, **external))
    with playing(space, git.folder, SHORT_S, ignored=[REPLICAS_FIELD]) as player:
        stable = at_rest(space, player).stable
        assert space.service("web")["spec"]["scaling"]["replicas"] == 1, "the folder's number to start with"
        with player.between_rounds():
            space.kubectl("scale", "infsvc/web", "--replicas=3")
        rounds = player.wait_rounds(3)
        assert [r for r in rounds if not r.in_sync] == []
        player.wait("three replicas", lambda: space.service("web")["status"].get("readyReplicas") == 3)

        git.commit("web", web(accelerator={"maxCount": 6}, **external))
        (edited, after) = player.wait_rounds(2)
        assert edited.applied["InferenceService/web"].drift == ("spec.accelerator.maxCount",)
        assert after.in_sync
        look = player.settle("web", "Healthy")
        assert (look.service["spec"]["scaling"]["replicas"], look.stable) == (3, stable)
        assert look.service["status"]["readyReplicas"] == 3


def test_a_number_left_out_is_refused_with_the_reason_and_stops_nothing_else(space: Space, git: Repository) -> None:
    git.commit("web", web(scaling={"mode": "External"}), PROMPTS)
    with playing(space, git.folder, SHORT_S) as player:
        (tried,) = player.wait_rounds(1)
        assert "mode External needs replicas" in tried.applied["InferenceService/web"].refused
        assert space.get("ConfigMap", "prompts", "v1") is not None


def test_a_removed_file_takes_its_service_and_nothing_else(space: Space, git: Repository) -> None:
    """One is deleted in the foreground, as Argo CD does it, one in the background, as Flux does."""
    git.commit("prompts", PROMPTS)
    for name in ("web", "web-two"):
        git.commit(name, web(name=name))
    with playing(space, git.folder, SHORT_S) as player:
        for name in ("web", "web-two"):
            at_rest(space, player, name)
        kept, writes = uids(space, "web-two"), len(space.writes())
        for name, propagation in (("web", "Foreground"), ("web-two", "Background")):
            player.propagation = propagation
            git.remove(name)
            (pruning,) = player.wait_rounds(1)
            assert pruning.pruned == (f"InferenceService/{name}",)
            wait_gone(space, name)
            assert uids(space, "web-two") == (kept if name == "web" else {})
            assert player.wait_rounds(1)[0].in_sync
        assert [health for _, health in player.story("web-two")][:2] == ["Progressing", "Healthy"]
        assert {look.health for look in player.of("web")} == {"Progressing", "Healthy"}
        assert_true(player, "web-two")
        assert space.get("ConfigMap", "prompts", "v1") is not None
        space.wait_no_writes(1.0)
        assert space.writes()[writes:] == [], "nothing is made again, and nothing holds the deletion up"
