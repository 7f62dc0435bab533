"""One pass from the cluster to the cluster: what is read, what is looked up, and what happens when something fails."""

import asyncio
import copy
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.operator.fake import FakeCluster
from tests.operator.test_envoys import pod

from firsttoken.manifests.images import Images
from firsttoken.measurement.blocks import Part
from firsttoken.reconcile.envoy_views import Envoys, askable
from firsttoken.reconcile.ratios import Ratios
from firsttoken_operator import envoys
from firsttoken_operator import reconciler as reconciler_module
from firsttoken_operator.cluster import ClusterError
from firsttoken_operator.envoys import EnvoyAsker
from firsttoken_operator.gather import gather
from firsttoken_operator.hub import HubError
from firsttoken_operator.measuring import Fleet
from firsttoken_operator.reconciler import RESYNC_SECONDS, Reconciler
from firsttoken_operator.workqueue import Workqueue
from reconcile.services import API
from reconcile.storing import weights_of
from reconcile.world import World

CONFIGS = Path(__file__).parents[1] / "planning" / "configs"
KEY = ("apps", "chat")
ASKS = "list Pod/firsttoken.dev/service=chat,firsttoken.dev/role=gateway"
MINE = {"firsttoken.dev/service": "chat"}


class Queue(Workqueue[Any]):
    """Remembers when a key is to come back."""

    def __init__(self) -> None:
        super().__init__(jitter=lambda: 0.0)
        self.after: list[float] = []

    def add_after(self, key: Any, seconds: float) -> None:  # noqa: ARG002 - there is one
        self.after.append(seconds)


def cluster(*more: dict[str, Any]) -> FakeCluster:
    world = World()
    return FakeCluster(world.service, world.profiles["nvidia-a100-40gb"], *more)


def handle(fake: FakeCluster) -> Queue:
    queue = Queue()
    asyncio.run(Reconciler(fake, queue, Images()).handle(KEY))  # type: ignore[arg-type]
    return queue


def theirs(labels: dict[str, str] | None = None) -> dict[str, Any]:
    meta = {"name": "chat", "namespace": "apps", "uid": "uid-of-theirs", "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"theirs": True}}


def test_a_pass_makes_everything_writes_the_status_and_asks_for_another_look() -> None:
    fake = cluster()
    queue = handle(fake)
    assert fake.writes()[0].startswith("apply InferenceRevision/chat-")
    assert "apply Service/chat" in fake.writes()
    assert "merge InferenceService/chat/status" in fake.writes()
    assert queue.after == [2.0]


def test_a_service_that_is_gone_is_forgotten() -> None:
    fake = FakeCluster()
    queue = handle(fake)
    assert fake.calls == ["get InferenceService/chat"]
    assert queue.after == []


def test_0006_every_name_is_looked_up_before_it_is_first_applied() -> None:
    fake = cluster()
    handle(fake)
    for write in fake.writes():
        verb, _, name = write.partition(" ")
        if verb == "apply" and not name.endswith("/status"):
            assert f"get {name}" in fake.calls
            assert fake.calls.index(f"get {name}") < fake.calls.index(write)


@pytest.mark.parametrize(
    "labels",
    [
        {},
        MINE,
    ],
    ids=["unlabelled", "labelled"],
)
def test_0006_a_name_of_somebody_else_is_never_taken(labels: dict[str, str]) -> None:
    fake = cluster(theirs(labels))
    queue = handle(fake)
    assert [w for w in fake.writes() if "Event" not in w] == ["merge InferenceService/chat/status"]
    assert fake.objects["Service", "chat"]["spec"] == {"theirs": True}
    assert queue.after
    assert queue.after[0] <= 10.0


def test_an_object_of_ours_without_its_label_is_found_by_name_and_applied_again() -> None:
    ours = theirs()
    ours["metadata"]["managedFields"] = [{"manager": "firsttoken", "operation": "Apply", "fieldsV1": {}}]
    fake = cluster(ours)
    handle(fake)
    assert fake.writes().count("apply Service/chat") == 1
    assert fake.objects["Service", "chat"]["metadata"]["labels"]["firsttoken.dev/service"] == "chat"


def test_what_is_refused_is_said_in_the_status_and_tried_again_in_a_minute() -> None:
    fake = cluster()
    fake.fails["apply Service/chat"] = ClusterError(422, "Invalid", "spec.x: wrong")
    queue = handle(fake)
    assert "apply PodDisruptionBudget/chat-gateway" in fake.writes(), "the rest is applied"
    assert "merge InferenceService/chat/status" in fake.writes()
    assert queue.after == [60.0]
    assert any("spec.x: wrong" in o["message"] for (k, _), o in fake.objects.items() if k == "Event")


@pytest.mark.parametrize(
    ("error", "pause"),
    [
        (ClusterError(429, "TooManyRequests", "slow down", 30.0), 30.0),
        (ClusterError(503, "ServiceUnavailable", "later"), 0.2),
        (TimeoutError(), 0.2),
        (ConnectionRefusedError(), 0.2),
        (RuntimeError("a defect of ours"), 0.2),
    ],
    ids=repr,
)
@pytest.mark.parametrize("call", ["get InferenceService/chat", "apply Service/chat"])
def test_K8_whatever_fails_is_tried_again_and_never_raised(call: str, error: Exception, pause: float) -> None:
    fake = cluster()
    fake.fails[call] = error
    assert handle(fake).after == [pause]
    assert "merge InferenceService/chat/status" not in fake.writes(), "the status never claims what was not done"


def test_a_quiet_service_is_looked_at_without_an_event_in_ten_minutes_or_so() -> None:
    service = World().service
    service["metadata"]["deletionTimestamp"] = "2026-05-01T12:00:00Z"
    (seconds,) = handle(FakeCluster(service)).after
    assert 0.9 * RESYNC_SECONDS <= seconds <= 1.1 * RESYNC_SECONDS


def observed(fake: FakeCluster) -> Any:
    return asyncio.run(gather(fake, KEY, Images()))  # type: ignore[arg-type]


def test_the_profiles_a_spec_names_are_read_and_all_of_them_if_one_is_missing() -> None:
    other = {**World().profiles["nvidia-a100-40gb"], "metadata": {"name": "other"}}
    fake = cluster(other)
    assert set(observed(fake).profiles) == {"nvidia-a100-40gb"}
    assert "list AcceleratorProfile/" not in fake.calls
    fake.objects["InferenceService", "chat"]["spec"]["accelerator"]["type"] = "unknown"
    assert set(observed(fake).profiles) == {"nvidia-a100-40gb", "other"}


def test_a_cluster_without_the_gateway_api_is_told() -> None:
    fake = cluster()
    assert observed(fake).gateway_api
    fake.unknown.add("HTTPRoute")
    assert not observed(fake).gateway_api


def serving() -> tuple[FakeCluster, World, str]:
    """A complete first revision without requests, in a cluster with one Envoy pod."""
    world = World()
    world.reconcile()
    world.come_up()
    return FakeCluster(*_everything(world), pod()), world, world.revision["desired"]


def _everything(world: World) -> list[dict[str, Any]]:
    return [world.service, {"kind": "AcceleratorProfile", **world.profiles["nvidia-a100-40gb"]}, *world.objects()]


def handle_with(fake: FakeCluster, said: Envoys, *, ask: bool = True) -> tuple[Queue, list[str]]:
    """One pass in which the Envoys say this; which pods were asked."""
    queue, asked = Queue(), []

    class Told(EnvoyAsker):
        async def ask(self, key: Any, pods: Any) -> Envoys:
            asked.extend(p["metadata"]["name"] for p in askable(pods, key[1]))
            return said

    reconciler = Reconciler(fake, queue, Images(), ask_envoys=ask)  # type: ignore[arg-type]
    if ask:
        reconciler._asker = Told()
    asyncio.run(reconciler.handle(KEY))
    return queue, asked


@pytest.mark.parametrize("found", [False, True])
def test_0013_what_envoys_say_decides_whether_requests_move(found: bool) -> None:
    fake, world, name = serving()
    queue, asked = handle_with(fake, Envoys((world.view(name) if found else world.view(),)))
    assert asked == ["envoy-1"]
    assert ASKS in fake.calls
    assert weights_of(fake.objects["ConfigMap", "chat-gateway-routes"]) == {name: 100 if found else 0}
    assert queue.after == [1.0]


def test_0013_a_way_to_no_pod_asks_none() -> None:
    fake, _, name = serving()
    handle_with(fake, Envoys(), ask=False)
    assert ASKS not in fake.calls
    assert weights_of(fake.objects["ConfigMap", "chat-gateway-routes"]) == {name: 100}


def test_0013_envoys_are_not_asked_when_that_cannot_matter() -> None:
    fake, world, name = serving()
    world.report(world.get("Deployment", name), ready=0)
    fake.objects["Deployment", name] = world.get("Deployment", name)
    assert handle_with(fake, Envoys())[1] == []
    assert ASKS not in fake.calls


def test_0013_an_envoy_that_hangs_costs_a_pass_no_more_than_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, _, name = serving()
    monkeypatch.setattr(envoys, "PATIENCE_SECONDS", 0.2)

    asked, before = 0, copy.deepcopy(fake.objects)

    async def run() -> None:
        over = asyncio.Event()

        async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            asked += 1
            await over.wait()
            writer.close()

        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        monkeypatch.setattr(envoys, "GATEWAY_METRICS_PORT", server.sockets[0].getsockname()[1])
        reconciler = Reconciler(fake, Queue(), Images())  # type: ignore[arg-type]
        async with server:
            for _ in range(2):
                fake.objects = copy.deepcopy(before)
                async with asyncio.timeout(10):
                    await reconciler.handle(KEY)
            over.set()
            await asyncio.sleep(0.05)

    asyncio.run(run())
    assert asked == 1, "after that it is known to be out of reach"
    assert weights_of(fake.objects["ConfigMap", "chat-gateway-routes"]) == {name: 100}


def test_measurements_are_replayed_beside_the_event_loop_and_one_service_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replay takes its time, and a thousand services are told of at once when Prometheus answers again."""
    threads: list[int] = []
    running = most = 0

    def slow(*_: object) -> dict[Part, Ratios]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        threads.append(threading.get_ident())
        time.sleep(0.02)
        running -= 1
        return {}

    monkeypatch.setattr(reconciler_module, "ratios_of", slow)

    async def run() -> int:
        fleet = Fleet(Nothing(), lambda _: None)
        one = Reconciler(cluster(), Queue(), Images(), fleet=fleet)  # type: ignore[arg-type]
        await asyncio.gather(one.handle(KEY), one.handle(KEY))
        return threading.get_ident()

    assert asyncio.run(run()) not in threads
    assert (len(threads), most) == (2, 1)


class Nothing:
    """A Prometheus that is never asked."""

    async def ask(self) -> dict[Any, Any]:
        raise AssertionError


def test_0007_pods_are_listed_only_while_a_deployment_is_incomplete() -> None:
    labels = {**MINE, "firsttoken.dev/role": "serve"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "labels": labels, "generation": 1},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": labels}}
    fake = cluster(deployment, pod)
    assert [p["metadata"]["name"] for p in observed(fake).pods] == ["p"]
    deployment["status"] |= {"availableReplicas": 1}  # type: ignore[operator]
    fake = cluster(deployment, pod)
    assert observed(fake).pods == ()
    assert API in {o["apiVersion"] for o in fake.objects.values()}


class Hub:
    """Answers every question alike, and remembers them."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, 0

    async def config(self, spec: Any) -> Any:  # noqa: ARG002 - there is one
        self.asked += 1
        return self.answer


def handled_with(hub: Hub, fake: FakeCluster) -> Queue:
    queue = Queue()
    asyncio.run(Reconciler(fake, queue, Images(), hub=hub).handle(KEY))  # type: ignore[arg-type]
    return queue


def unknown_model() -> FakeCluster:
    world = World(model={"uri": "hf://somebody/model"})
    return FakeCluster(world.service, world.profiles["nvidia-a100-40gb"])


def test_the_hub_is_asked_for_a_model_that_nobody_knows_until_a_record_holds_the_answer() -> None:
    hub, fake = Hub(json.loads((CONFIGS / "llama-3.1-8b.json").read_text(encoding="utf-8"))), unknown_model()
    handled_with(hub, fake)
    assert any(call.startswith("apply InferenceRevision/chat-") for call in fake.writes())
    handled_with(hub, fake)
    assert hub.asked == 1


def test_a_hub_that_is_out_is_in_the_status_and_asked_again() -> None:
    hub, fake = Hub(HubError("the hub is out")), unknown_model()
    queue = handled_with(hub, fake)
    assert (hub.asked, queue.after) == (1, [2.0])
    assert not any(call.startswith("apply") for call in fake.writes())


def test_the_hub_is_not_asked_for_a_known_model() -> None:
    hub = Hub(None)
    handled_with(hub, cluster())
    assert hub.asked == 0
