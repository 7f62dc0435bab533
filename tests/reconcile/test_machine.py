"""Whatever people, clocks, Deployments and crashes do to a service: what always holds, and that it converges.

A machine of random steps on a `World`.
"""

import copy
import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from firsttoken.manifests.names import REVISION_LABEL, SERVICE_LABEL
from firsttoken.planning.accelerators import catalogue
from firsttoken.reconcile import Decision, Observation, decide
from firsttoken.reconcile.envoy_views import EnvoyView
from firsttoken.reconcile.objects import is_owned, label, ref
from reconcile.services import merged, spec
from reconcile.storing import weights_of
from reconcile.world import World

PASSES = 16  # within which a service that is left alone must be quiet

SPECS: list[dict[str, Any]] = [
    {},
    {"model": {"maxModelLength": 8192}},
    {"model": {"maxModelLength": 7168}},
    {"engine": {"pins": {"prefixCaching": True}}},  # two replicas: with a router
    {"layout": {"mode": "Disaggregated"}},
    {"layout": {"mode": "Colocated"}},  # as Auto chose
    {"accelerator": {"maxCount": 1}},
    {"accelerator": {"maxCount": 4}},
    {"scaling": {"mode": "External", "replicas": 1}},
    {"scaling": {"replicas": 9}},  # above maxCount
    {"model": {"uri": "hf://meta-llama/Llama-3.1-70B-Instruct"}},  # does not fit
    {"model": {"uri": "hf://nobody/knows-it"}},
    {"model": {"uri": 7}},  # no spec at all
    {"accelerator": {"type": "nvidia-h200"}},  # known only while its profile is there
    {"routing": {"gateway": {"name": "public"}}},
    {"rollout": {"drainTimeout": "0s"}},
    {"rollout": {"drainTimeout": "10m"}},
    {"revisionHistoryLimit": 0},
]
EDITS: dict[str, list[dict[str, Any]]] = {
    "Deployment": [{"spec": {"replicas": 5}}, {"spec": {"replicas": 0}}, {"spec": {"paused": True}}],
    "Service": [{"spec": {"selector": {"app": "x"}}}, {"metadata": {"labels": {SERVICE_LABEL: None}}}],
    "ConfigMap": [{"data": None}, {"data": {"routes.json": "{"}}, {"metadata": {"ownerReferences": None}}],
    "PodDisruptionBudget": [{"metadata": {"labels": {"app.kubernetes.io/name": "x"}}}],
}
some = st.integers(min_value=0, max_value=2**16)  # which of those there are


class ServiceMachine(RuleBasedStateMachine):
    """One service in one cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.before_delete = self.deleted
        self.observation: Observation | None = None
        self.foreign: dict[Any, dict[str, Any]] = {}

    @initialize(change=st.sampled_from(SPECS))
    def begin(self, change: dict[str, Any]) -> None:
        self.world.set_spec(merged(spec(), change))

    # people

    @rule(change=st.sampled_from(SPECS))
    def another_spec(self, change: dict[str, Any]) -> None:
        self.world.set_spec(merged(spec(), change))

    @rule(change=st.sampled_from(SPECS))
    def an_edit_on_top(self, change: dict[str, Any]) -> None:
        self.world.set_spec(merged(self.world.service["spec"], change))

    @rule(which=some)
    def an_object_is_deleted_by_hand(self, which: int) -> None:
        ours = [o for o in self.world.objects() if ref(o) not in self.foreign]
        if ours:
            self.world.remove(ours[which % len(ours)])

    @rule(which=some, how=some)
    def an_object_is_edited_by_hand(self, which: int, how: int) -> None:
        ours = [o for o in self.world.objects() if ref(o) not in self.foreign and o["kind"] in EDITS]
        if ours:
            obj = ours[which % len(ours)]
            patches = EDITS[obj["kind"]]
            self.world.by_hand(copy.deepcopy(obj), patches[how % len(patches)])

    @rule(which=some, labelled=st.booleans())
    def somebody_takes_a_name(self, which: int, labelled: bool) -> None:
        ours = [o for o in self.world.objects() if ref(o) not in self.foreign and o["kind"] != "InferenceRevision"]
        if ours:
            obj = ours[which % len(ours)]
            self.world.remove(obj)
            labels = {"labels": {SERVICE_LABEL: "chat"}} if labelled else {}
            parts = {"metadata": labels, "spec": {"theirs": True}}
            theirs = self.world.create(obj["kind"], obj["metadata"]["name"], obj["apiVersion"], **parts)
            self.foreign[ref(obj)] = copy.deepcopy(theirs)

    @precondition(lambda self: self.foreign)
    @rule()
    def the_names_are_given_back(self) -> None:
        for obj in self.foreign.values():
            self.world.remove(obj)
        self.foreign.clear()

    @rule()
    def the_status_is_wiped(self) -> None:
        self.world.service.pop("status", None)

    @rule(garbled=st.sampled_from([[], "x", {"conditions": 1}, {"revision": {"draining": [3]}}, {"plan": {}}]))
    def the_status_is_garbled(self, garbled: Any) -> None:
        self.world.service["status"] = copy.deepcopy(garbled)

    @rule(which=some, what=st.sampled_from(["stable", "desired", "draining", "inputsHash", "conditions", "shiftedAt"]))
    def the_status_is_edited_by_hand(self, which: int, what: str) -> None:
        status = copy.deepcopy(self.world.status)
        names = [*self.world.names("InferenceRevision"), "chat-00000000"]
        if not isinstance(status, dict) or "desired" not in status.get("revision", {}):
            return
        if what == "conditions":
            status["conditions"] = status["conditions"][which % 3 :]
        elif what == "draining":
            status["revision"]["draining"] = [{"name": names[which % len(names)], "since": "2026-01-01t00:00:00z"}]
        elif what == "shiftedAt":
            status["revision"]["shiftedAt"] = "0000-01-01T00:00:00Z"
        else:
            status["revision"][what] = names[which % len(names)]
        self.world.service["status"] = status

    @rule(there=st.booleans(), name=st.sampled_from(["nvidia-a100-40gb", "nvidia-h200"]))
    def a_profile_comes_or_goes(self, there: bool, name: str) -> None:
        self.world.profiles.pop(name, None)
        if there:
            self.world.profiles[name] = {"spec": catalogue()[name].wire()}

    @rule()
    def the_gateway_api_comes_or_goes(self) -> None:
        self.world.gateway_api = not self.world.gateway_api

    # the cluster

    @rule(seconds=st.sampled_from([1, 5, 60, 121, 86400, -1, -60, -86400]))
    def time_passes_or_jumps(self, seconds: int) -> None:
        self.world.wait(seconds)

    @rule(which=some, ready=st.sampled_from([0, 1, None]))
    def a_deployment_reports(self, which: int, ready: int | None) -> None:
        deployments = [d for d in self.world.objects("Deployment") if ref(d) not in self.foreign]
        if deployments:
            self.world.report(deployments[which % len(deployments)], ready)

    @rule(sees=st.integers(min_value=0, max_value=3), fresh=st.booleans(), silent=st.booleans())
    def envoys_say(self, sees: int, fresh: bool, silent: bool) -> None:
        """For a while; nobody of them (0 of 3), one with the stored routes or none, and one that says nothing."""

        def view() -> EnvoyView:
            return self.world.view(*self.world.names("InferenceRevision")[-sees:], routes=None if fresh else {})

        self.world.say(*([view] if sees else []), silent=("envoy-2",) if silent else ())

    @rule()
    def everything_comes_up(self) -> None:
        self.come_up()

    # the operator

    @rule()
    def a_pass(self) -> None:
        self.reconcile()

    @rule(steps=st.integers(min_value=0, max_value=20))
    def a_pass_that_is_killed(self, steps: int) -> None:
        self.reconcile(steps)

    @rule()
    def left_alone_it_converges(self) -> None:
        self.world.say(lambda: self.world.view(*self.world.names("InferenceRevision")))
        for _ in range(PASSES):
            before = self.world.writes
            self.come_up()
            self.reconcile()
            self.world.wait(601)  # the longest drainTimeout
            if self.world.writes == before:
                break
        else:
            raise AssertionError(f"still writing after {PASSES} passes: {self.world.look()[1]}")
        self.check_quiet()

    def come_up(self) -> None:
        self.world.accept_routes()
        for deployment in self.world.objects("Deployment"):
            if ref(deployment) not in self.foreign:
                self.world.report(deployment)

    def reconcile(self, steps: int | None = None) -> None:
        self.observation, decision = self.world.look()
        self.check(self.observation, decision)
        self.world.reconcile(steps)

    # what always holds

    def check(self, observation: Observation, decision: Decision) -> None:
        """Of each decision."""
        again = decide(copy.deepcopy(observation))
        assert repr(again) == repr(decision), "equal observations, unequal decisions"
        assert "InferenceService" not in [o["kind"] for o in decision.apply], "the spec is the user's (S6)"
        json.dumps([decision.apply, decision.status], allow_nan=False)
        if observation.foreign:
            assert decision.delete == (), "nothing is deleted while a name is taken"
            taken = [one.name for one in observation.foreign]
            for obj in decision.apply:
                assert ref(obj) not in observation.foreign, "objects of others are left alone"
                revision = label(obj, REVISION_LABEL)
                needs = [name for name in taken if revision and (name == revision or name.startswith(f"{revision}-"))]
                assert not needs, "nothing of a revision is written while a name that it needs is taken"
        uid = self.world.service["metadata"]["uid"]
        assert all(is_owned(o, uid) for o in decision.delete), "what others own is never deleted"
        assert decision.requeue_after is None or 0 <= decision.requeue_after <= 600

    def deleted(self, obj: dict[str, Any]) -> None:
        """Of each deletion, at its moment."""
        name = label(obj, REVISION_LABEL)
        assert self.world.weights().get(name or "", 0) == 0, f"{name} has requests (D9)"
        if self.observation is not None:
            routes = next((o for o in self.observation.children if o["metadata"]["name"] == "chat-gateway-routes"), {})
            assert weights_of(routes).get(name or "", 0) == 0, f"{name} had requests until this pass (invariant 3)"

    @invariant()
    def weights_are_all_or_nothing(self) -> None:
        assert sum(self.world.weights().values()) in (0, 100)

    @invariant()
    def objects_of_others_are_as_they_made_them(self) -> None:
        for key, obj in self.foreign.items():
            assert self.world.store[key] == obj

    def check_quiet(self) -> None:
        """Of a service that was left alone."""
        world = self.world
        assert not world.look()[1].writes
        says = {c["type"]: c["status"] for c in world.status["conditions"]}
        assert says["Ready"] == "True" or says.get("Stalled") == "True", world.status["conditions"]
        assert not (says["Ready"] == "True" and "Stalled" in says)
        deployed = {label(d, REVISION_LABEL) for d in world.objects("Deployment") if ref(d) not in self.foreign}
        # Nothing is written then, or what was taken can't be put back.
        blocked = self.foreign or world.says("Ready") == ("False", "InvalidSpec")
        for name, weight in world.weights().items():
            assert name in deployed or weight == 0 or blocked, f"{name} gets requests and is not there"
        if says["Ready"] == "True":
            stable = world.revision["stable"]
            assert stable == world.revision["desired"]
            assert world.weights() == {stable: 100}
            assert world.draining == []
            there = {label(o, REVISION_LABEL) for o in world.objects() if o["kind"] != "InferenceRevision"}
            assert there - {None} == {stable}
            limit = world.service["spec"].get("revisionHistoryLimit", 10)
            assert len(world.names("InferenceRevision")) <= limit + 1

    def teardown(self) -> None:
        self.left_alone_it_converges()


TestService = ServiceMachine.TestCase
TestService.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
