"""The operator's roles give exactly what its code uses, and users' roles nothing that leads to more."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest
from e2e.chart.rendering import Object, example, objects, one, render

import firsttoken_operator
from firsttoken_operator.kinds import CHILDREN, EVENT, POD, PROFILE, REVISION, SERVICE, Kind

Rights = dict[tuple[str, str], set[str]]

WATCHED = {"get", "list", "watch"}
OWNED = WATCHED | {"create", "patch", "delete"}

# Every call of the operator on the API server, and the verbs it needs. `*`: whatever the decision names.
CALLS: dict[tuple[str, str], list[tuple[Kind, set[str]]]] = {
    ("get", "SERVICE"): [(SERVICE, {"get"})],
    ("get", "PROFILE"): [(PROFILE, {"get"})],
    ("list", "PROFILE"): [(PROFILE, {"list"})],
    ("list", "REVISION"): [(REVISION, {"list"})],
    ("list", "kind"): [(kind, {"list"}) for kind in CHILDREN],
    ("list", "POD"): [(POD, {"list"})],
    ("merge", "POD"): [(POD, {"patch"})],
    ("get", "kind_of(o['apiVersion'], o['kind'])"): [(kind, {"get"}) for kind in (REVISION, *CHILDREN)],
    ("apply", "obj"): [(kind, {"create", "patch"}) for kind in (REVISION, *CHILDREN)],
    ("delete", "obj"): [(kind, {"delete"}) for kind in (REVISION, *CHILDREN)],
    ("create", "body"): [(EVENT, {"create"})],
    ("get", "EVENT"): [(EVENT, {"get"})],
    ("merge", "EVENT"): [(EVENT, {"patch"})],
    ("list", "SERVICE"): [(SERVICE, {"list"})],
    ("merge", "SERVICE"): [],  # the subresource status, below
}


def rights(rules: list[Object]) -> Rights:
    found: Rights = defaultdict(set)
    for rule in rules:
        assert rule.keys() <= {"apiGroups", "resources", "verbs", "resourceNames"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found[group, resource] |= set(rule["verbs"])
    return dict(found)


def calls() -> set[tuple[str, str]]:
    """Method and first argument of each call on a `cluster` in the operator's code, the command line left out."""
    found = set()
    for path in Path(firsttoken_operator.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if ast.unparse(node.func.value) in ("cluster", "self._cluster"):
                found.add((node.func.attr, ast.unparse(node.args[0])))
    return found


def used() -> Rights:
    """What the code needs in the namespaces it serves."""
    found: Rights = defaultdict(set)
    for needs in CALLS.values():
        for kind, verbs in needs:
            found[kind.group, kind.plural] |= verbs
    for kind in (SERVICE, REVISION, *CHILDREN, PROFILE):  # kopf's watches
        found[kind.group, kind.plural] |= {"list", "watch"}
    found[SERVICE.group, f"{SERVICE.plural}/status"] = {"patch"}
    found[REVISION.group, f"{REVISION.plural}/status"] = {"patch"}
    found[SERVICE.group, f"{SERVICE.plural}/finalizers"] = {"update"}  # OwnerReferencesPermissionEnforcement
    for kind, verbs in handed_on():
        found[kind] |= verbs
    return dict(found)


def handed_on() -> list[tuple[tuple[str, str], set[str]]]:
    """What vllm-router's Role holds: nobody may hand out what he doesn't hold."""
    (role,) = (o for o in objects(example()) if o["kind"] == "Role")
    return list(rights(role["rules"]).items())


def test_each_call_of_the_operator_is_accounted_for() -> None:
    """A new call on the API server belongs into CALLS above, and its verbs into the chart's _rules.tpl."""
    assert calls() == set(CALLS)


def test_cluster_role_is_what_the_code_uses() -> None:
    wanted = used()
    wanted["apiextensions.k8s.io", "customresourcedefinitions"] = {"list", "watch"}  # kopf notices new kinds
    wanted[PROFILE.group, PROFILE.plural] |= {"create", "patch"}  # the catalogue
    assert rights(one(render(), "ClusterRole")["rules"]) == wanted


def test_without_the_catalogue_profiles_are_only_read() -> None:
    rendered = render({"acceleratorCatalogue": {"install": False}})
    assert rights(one(rendered, "ClusterRole")["rules"])[PROFILE.group, PROFILE.plural] == WATCHED


def test_K5_namespaced_roles_are_the_same_and_only_reads_are_cluster_wide() -> None:
    rendered = render({"watchNamespaces": ["team-a", "team-b"]})
    wanted = used()
    del wanted[PROFILE.group, PROFILE.plural]
    roles = [o for o in rendered if o["kind"] == "Role" and o["metadata"]["name"] == "firsttoken-operator"]
    assert [role["metadata"]["namespace"] for role in roles] == ["team-a", "team-b"]
    assert all(rights(role["rules"]) == wanted for role in roles)
    (cluster,) = (o for o in rendered if o["kind"] == "ClusterRole" and "-operator-" in o["metadata"]["name"])
    assert cluster["metadata"]["name"].startswith("firsttoken-system-firsttoken-operator-")
    assert rights(cluster["rules"]) == {
        (PROFILE.group, PROFILE.plural): WATCHED | {"create", "patch"},
        ("apiextensions.k8s.io", "customresourcedefinitions"): {"list", "watch"},
        ("", "namespaces"): {"list", "watch"},
    }


def test_lease_by_name_in_its_own_namespace() -> None:
    role = one(render(), "Role", "firsttoken-operator-lease")
    assert role["metadata"]["namespace"] == "firsttoken-system"
    create, rest = role["rules"]
    assert create == {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}
    assert rest["resourceNames"] == ["firsttoken-operator"]
    assert rest["verbs"] == ["get", "update"]


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": ["team-a"]}], ids=["cluster", "namespaced"])
def test_nothing_dangerous(values: Object) -> None:
    """No wildcard, no Secret, no escalation, no impersonation, no creation of pods, no writing of specs."""
    for obj in render(values):
        if obj["kind"] not in ("ClusterRole", "Role"):
            continue
        for (_, resource), verbs in rights(obj["rules"]).items():
            assert "*" not in verbs | {resource}
            assert resource != "secrets"
            assert not verbs & {"escalate", "bind", "impersonate"}
            assert resource != "pods" or "create" not in verbs
    operator = [
        o for o in render(values) if o["kind"] in ("ClusterRole", "Role") and "operator" in o["metadata"]["name"]
    ]
    for obj in operator:
        assert rights(obj["rules"]).get((SERVICE.group, SERVICE.plural), WATCHED) == WATCHED


def test_users_edit_services_and_only_see_revisions() -> None:
    rendered = render()
    view, edit = one(rendered, "ClusterRole", "firsttoken-view"), one(rendered, "ClusterRole", "firsttoken-edit")
    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in edit["metadata"]["labels"]
    assert edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    assert all(verbs <= WATCHED for verbs in rights(view["rules"]).values())
    assert {resource for _, resource in rights(edit["rules"])} == {SERVICE.plural, f"{SERVICE.plural}/scale"}
