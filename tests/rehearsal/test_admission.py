"""Edits by hand: what the API server would refuse ends a rehearsal in one line, all else is played."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.rehearsal.admission import edited
from firsttoken.rehearsal.errors import WorldError

LABELS = {"app": "chat", "role": "serve"}
CONTAINER = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
POD = {"terminationGracePeriodSeconds": 100, "containers": [CONTAINER]}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "chat-1", "namespace": "apps", "uid": "uid-1", "generation": 3, "labels": dict(LABELS)},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": POD},
    },
    "status": {"replicas": 2},
}
CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "chat-live", "namespace": "apps", "uid": "uid-2"},
    "data": {"settings.json": "{}"},
}
RECORD = {**CONFIG, "kind": "InferenceRevision", "spec": {"plan": {"roles": []}}}


def pod(**patch: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": patch}}}


@pytest.mark.parametrize(
    ("obj", "patch", "says"),
    [
        (DEPLOYMENT, {"spec": []}, "spec is a list: an object is needed"),
        (DEPLOYMENT, {"spec": None}, "spec is missing"),
        (DEPLOYMENT, {"spec": {"replicas": "lots"}}, "spec.replicas is a text: a number is needed"),
        (DEPLOYMENT, {"spec": {"replicas": -3}}, "spec.replicas is -3: give a whole number from 0 to 1000"),
        (DEPLOYMENT, {"spec": {"replicas": 10**9}}, "spec.replicas is 1000000000: give a whole number from 0 to 1000"),
        (DEPLOYMENT, {"spec": {"replicas": True}}, "spec.replicas is true or false: a number is needed"),
        (DEPLOYMENT, {"spec": {"replicas": 1.5}}, "spec.replicas is 1.5: give a whole number"),
        (DEPLOYMENT, {"spec": {"progressDeadlineSeconds": "soon"}}, "spec.progressDeadlineSeconds is 'soon': give"),
        (DEPLOYMENT, {"spec": {"selector": {"matchLabels": {"app": "x"}}}}, "spec.selector can't be changed"),
        (DEPLOYMENT, {"spec": {"template": None}}, "spec.template needs a spec"),
        (
            DEPLOYMENT,
            {"spec": {"template": {"metadata": {"labels": {"role": None}}}}},
            "spec.template.metadata.labels don't match spec.selector",
        ),
        (DEPLOYMENT, pod(containers=None), "spec.template.spec.containers: a list of at least one is needed"),
        (DEPLOYMENT, pod(containers=[]), "spec.template.spec.containers: a list of at least one is needed"),
        (DEPLOYMENT, pod(containers=["x"]), r"spec.template.spec.containers\[0\] is a text: an object is needed"),
        (DEPLOYMENT, pod(containers=[{"image": "i"}]), r"spec.template.spec.containers\[0\].name: a text is needed"),
        (
            DEPLOYMENT,
            pod(containers=[{**CONTAINER, "resources": {"limits": {"nvidia.com/gpu": "many"}}}]),
            "limits.nvidia.com/gpu is 'many': no quantity",
        ),
        (DEPLOYMENT, pod(terminationGracePeriodSeconds=-1), "spec.template.spec.terminationGracePeriodSeconds is -1"),
        (DEPLOYMENT, {"metadata": {"name": "q"}}, "metadata.name can't be changed"),
        (DEPLOYMENT, {"metadata": None}, "metadata.name can't be changed"),
        (DEPLOYMENT, {"kind": "Pod"}, "kind can't be changed"),
        (DEPLOYMENT, {"metadata": {"labels": {"a": 1}}}, "metadata.labels.a is a number: a text is needed"),
        (DEPLOYMENT, {"metadata": {"ownerReferences": [{}]}}, "metadata.ownerReferences: a list of objects"),
        (CONFIG, {"data": {"settings.json": {"generation": 1}}}, "data.settings.json is an object: a text is needed"),
        (CONFIG, {"data": "x"}, "data is a text: an object is needed"),
        (RECORD, {"spec": {"plan": None}}, "spec is a record and can't be changed"),
    ],
)
def test_what_the_api_server_refuses_is_said_in_one_line(obj: Any, patch: dict[str, Any], says: str) -> None:
    before = copy.deepcopy(obj)
    with pytest.raises(
        WorldError, match=f"events.0..editObject.patch: the API server refuses it for .*: .*{says}"
    ) as e:
        edited(obj, patch, "events[0].editObject")
    assert "\n" not in str(e.value)
    assert obj == before


def test_what_only_the_server_sets_is_left_as_it_was() -> None:
    patch = {"metadata": {"generation": 99, "labels": {"b": "c"}}, "status": {"replicas": 7}, "spec": {"replicas": 5}}
    found = edited(DEPLOYMENT, patch, "here")
    assert found["metadata"] == {**DEPLOYMENT["metadata"], "labels": {**LABELS, "b": "c"}}
    assert found["status"] == {"replicas": 2}
    assert found["spec"]["replicas"] == 5


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.just("x"),
    lambda below: (
        st.lists(below, max_size=2) | st.dictionaries(st.sampled_from(["name", "limits", "spec"]), below, max_size=2)
    ),
    max_leaves=4,
)
NAMES = ("spec", "metadata", "template", "containers", "labels", "replicas", "selector", "resources", "data", "kind")
patches = st.recursive(values, lambda below: st.dictionaries(st.sampled_from(NAMES), below, max_size=3), max_leaves=6)


@given(st.sampled_from([DEPLOYMENT, CONFIG, RECORD]), st.dictionaries(st.sampled_from(NAMES), patches, max_size=3))
def test_any_patch_is_taken_or_refused(obj: Any, patch: dict[str, Any]) -> None:
    try:
        found = edited(obj, patch, "here")
    except WorldError:
        return
    assert (found["kind"], found["metadata"]["name"]) == (obj["kind"], obj["metadata"]["name"])
    if obj is DEPLOYMENT:
        assert isinstance(found["spec"].get("replicas", 1), int)
        assert all(one["name"] and one["image"] for one in found["spec"]["template"]["spec"]["containers"])
