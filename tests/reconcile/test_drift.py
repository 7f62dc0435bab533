"""Drift: what was edited by hand is noticed, what others added is left alone (invariant 13, S26, D18)."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.reconcile.drift import covers, drifted

DESIRED: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "x", "labels": {"a": "1"}, "ownerReferences": [{"uid": "u", "controller": True}]},
    "spec": {
        "replicas": 2,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "engine",
                        "args": ["--a", "1"],
                        "ports": [{"name": "http", "containerPort": 8000}],
                        "env": [{"name": "A", "value": "1"}],
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            }
        },
    },
}

# As kube-apiserver 1.36 writes it for the object above.
OWNED: dict[str, Any] = {
    "f:metadata": {"f:labels": {"f:a": {}}, "f:ownerReferences": {'k:{"uid":"u"}': {}}},
    "f:spec": {
        "f:replicas": {},
        "f:template": {
            "f:spec": {
                "f:containers": {
                    'k:{"name":"engine"}': {
                        ".": {},
                        "f:name": {},
                        "f:args": {},
                        "f:ports": {
                            'k:{"containerPort":8000,"protocol":"TCP"}': {".": {}, "f:containerPort": {}, "f:name": {}}
                        },
                        "f:env": {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
                    }
                },
                "f:volumes": {'k:{"name":"tmp"}': {".": {}, "f:name": {}, "f:emptyDir": {}}},
            }
        },
    },
}


CONTAINERS = ("f:spec", "f:template", "f:spec", "f:containers")


def stored(owned: dict[str, Any] | None = None) -> dict[str, Any]:
    """DESIRED as the API server returns it: defaults filled in, ownership recorded."""
    obj = copy.deepcopy(DESIRED)
    entry = {"manager": "firsttoken", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": owned or OWNED}
    obj["metadata"] |= {"uid": "d", "generation": 1, "managedFields": [entry]}
    container = obj["spec"]["template"]["spec"]["containers"][0]
    container["ports"][0]["protocol"] = "TCP"
    container["imagePullPolicy"] = "IfNotPresent"
    obj["spec"]["strategy"] = {"type": "RollingUpdate"}
    return obj


def test_what_the_api_server_adds_is_no_drift() -> None:
    assert not drifted(DESIRED, stored())


def test_a_missing_object_is_applied() -> None:
    assert drifted(DESIRED, None)


def edit_replicas(obj: dict[str, Any]) -> None:
    obj["spec"]["replicas"] = 5


def remove_label(obj: dict[str, Any]) -> None:
    obj["metadata"]["labels"] = {}


def change_args(obj: dict[str, Any]) -> None:
    obj["spec"]["template"]["spec"]["containers"][0]["args"].append("--more")


def remove_env(obj: dict[str, Any]) -> None:
    del obj["spec"]["template"]["spec"]["containers"][0]["env"]


def cut_owner(obj: dict[str, Any]) -> None:
    del obj["metadata"]["ownerReferences"]


def strip_ownership(obj: dict[str, Any]) -> None:
    obj["metadata"]["managedFields"] = []


@pytest.mark.parametrize(
    "edit", [edit_replicas, remove_label, change_args, remove_env, cut_owner, strip_ownership], ids=lambda f: f.__name__
)
def test_S26_an_edit_of_our_fields_is_drift(edit: Any) -> None:
    obj = stored()
    edit(obj)
    assert drifted(DESIRED, obj)


def test_D18_items_and_fields_of_others_are_left_alone() -> None:
    obj = stored()
    obj["metadata"]["labels"]["team"] = "ml"
    obj["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": "x"}
    pod = obj["spec"]["template"]["spec"]
    pod["containers"].insert(0, {"name": "sidecar", "image": "x"})
    pod["containers"][1]["env"].append({"name": "B", "value": "2"})
    pod["volumes"].append({"name": "more", "emptyDir": {}})
    assert not drifted(DESIRED, obj)


@pytest.mark.parametrize(
    "path",
    [
        ("f:spec", "f:paused"),
        ("f:metadata", "f:annotations", "f:old"),
        ("f:spec", "f:template", "f:spec", "f:containers", 'k:{"name":"old"}', "f:image"),
        (
            "f:spec",
            "f:template",
            "f:spec",
            "f:containers",
            'k:{"name":"engine"}',
            "f:env",
            'k:{"name":"OLD"}',
            "f:value",
        ),
    ],
    ids=json.dumps,
)
def test_a_field_we_still_own_but_no_longer_want_is_given_up(path: tuple[str, ...]) -> None:
    owned = copy.deepcopy(OWNED)
    at = owned
    for key in path:
        at = at.setdefault(key, {})
    assert drifted(DESIRED, stored(owned))


leaves = st.one_of(st.integers(), st.booleans(), st.text(max_size=5))
values = st.recursive(
    leaves,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=4), v, max_size=3),
    max_leaves=15,
)


@given(values)
def test_everything_covers_itself(value: Any) -> None:
    assert covers(copy.deepcopy(value), value)


@given(st.dictionaries(st.text(max_size=4), values, min_size=1, max_size=3), st.data())
def test_added_keys_never_matter_and_a_changed_leaf_always_does(value: dict[str, Any], data: st.DataObject) -> None:
    observed = copy.deepcopy(value)
    observed["added by another"] = 1
    assert covers(observed, value)
    key = data.draw(st.sampled_from(sorted(value)))
    if value[key] not in ({}, []):
        observed[key] = "something else entirely"
        assert not covers(observed, value)
