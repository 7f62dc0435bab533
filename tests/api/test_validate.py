"""Validation of whole files: kinds, several faults at once, and never a traceback."""

import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from api.rows import rejected_yaml
from firsttoken.api.example import BASES
from firsttoken.api.validation import check_object, validate
from firsttoken.api.validation_examples import EXAMPLES

SERVICE = BASES["InferenceService"]


def messages(text: str) -> list[tuple[str, str]]:
    return [(f.path, f.message) for f in validate(text).faults]


def test_every_fault_of_every_document_is_told_in_the_order_of_the_file() -> None:
    text = SERVICE + "  workload: {profile: Search}\n  slos:\n  - metric: TTFT\n    target: fast\n---\n" + SERVICE
    result = validate(text.replace("maxCount", "x") + "    maxCount: 0\n")
    assert [(f.document_index, f.line, f.path) for f in result.faults] == [
        (0, 10, "spec.workload.profile"),
        (0, 13, "spec.slos[0].target"),
        (1, 24, "spec.accelerator.maxCount"),
    ]
    assert {f.name for f in result.faults} == {"kb-assistant"}
    assert result.checked == 2


def test_a_missing_field_is_told_at_the_line_of_what_misses_it() -> None:
    (fault,) = validate(SERVICE.replace("    type: nvidia-a100-40gb\n", "    maxCount: 8\n")).faults
    assert (fault.path, fault.message, fault.line) == ("spec.accelerator.type", "Required value", 8)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n---\n", "null\n"])
def test_an_empty_file_is_a_fault(text: str) -> None:
    assert [m for _, m in messages(text)] == [
        "holds no object of firsttoken.dev: expected InferenceService, InferenceRevision, AcceleratorProfile, "
        "PerformanceReport"
    ]


@pytest.mark.parametrize("text", ["just text", "- a\n- b\n", "42"])
def test_a_document_that_is_no_object_is_a_fault(text: str) -> None:
    (message,) = [m for _, m in messages(text)]
    assert message.startswith("not an object")


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        ("v1alpha1", "v1", "kind", "did you mean apiVersion firsttoken.dev/v1alpha1 and kind InferenceService?"),
        ("firsttoken.dev", "firsttoken.io", "kind", "did you mean apiVersion firsttoken.dev/v1alpha1"),
        ("InferenceService", "InferenceServices", "kind", "and kind InferenceService?"),
        ("InferenceService", "Deployment", "kind", "and kind one of InferenceService, "),
        ("kind: InferenceService\n", "", "kind", "Required value: kind is missing"),
        ("apiVersion: firsttoken.dev/v1alpha1\n", "", "apiVersion", "apiVersion is missing"),
        ("InferenceService", "List", "kind", "parted by ---"),
    ],
)
def test_a_wrong_kind_is_told_with_what_was_meant(old: str, new: str, path: str, words: str) -> None:
    ((found, message),) = messages(SERVICE.replace(old, new))
    assert found == path
    assert words in message


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("a: [", 1),
        ("- .inf", 1),
        ("{<<: 1}", 1),
        ("[{<<: 1}, {<<: 1}]", 1),
        ("{[a]: 1, [b]: 2}", 1),
        ("x: 1\nx: 2\n", 1),
        ("apiVersion: firsttoken.dev/v1alpha1\nkind: .inf\n", 1),
        ("apiVersion: v1\napiVersion: v1\nkind: Secret\n", 1),
        (SERVICE.replace("name: kb-assistant", "name: .nan"), 1),
        (SERVICE.replace("type: nvidia-a100-40gb", "type: .inf"), 1),
        (SERVICE.replace("type: nvidia-a100-40gb", "maxCount: .inf"), 2),
    ],
)
def test_a_yaml_error_is_told_once_and_not_with_what_follows_from_it(text: str, faults: int) -> None:
    assert len(messages(text)) == faults, messages(text)


def test_a_text_about_something_else_is_told_apart_by_a_flag() -> None:
    assert [f.nothing_of_ours for f in validate("# only a comment\n").faults] == [True]
    assert [f.nothing_of_ours for f in validate("apiVersion: v1\nkind: Secret\n").faults] == [True]
    assert not any(f.nothing_of_ours for f in validate("a: [\n").faults)
    assert not any(f.nothing_of_ours for f in validate(SERVICE.replace("type:", "typ:")).faults)


def test_other_kinds_are_left_aside_with_a_note() -> None:
    result = validate("apiVersion: v1\nkind: Secret\nmetadata: {name: hf-token}\n---\n" + SERVICE)
    assert result.faults == ()
    assert [n.message for n in result.notes] == ["v1 Secret is not Firsttoken's and was not checked"]
    assert result.checked == 1


def test_a_service_of_another_project_is_not_taken_for_ours() -> None:
    result = validate(SERVICE.replace("firsttoken.dev/v1alpha1", "serving.kserve.io/v1beta1"))
    assert result.checked == 0
    assert len(result.notes) == 1
    assert result.faults, "a file without any object of ours is a mistake"


@pytest.mark.parametrize(
    ("metadata", "path", "words"),
    [
        ("{}", "metadata.name", "Required value: name or generateName is required"),
        ("{name: Kb}", "metadata.name", "a lowercase RFC 1123 subdomain must consist of"),
        ("{name: 5}", "metadata.name", "a name is text"),
        ("{name: kb, lables: {a: b}}", "metadata.lables", 'unknown field "metadata.lables"'),
        ("{name: kb, namespace: []}", "metadata.namespace", "metadata.namespace is text"),
        ("{name: kb, namespace: 7}", "metadata.namespace", "put it in quotes"),
        ("{generateName: true}", "metadata.generateName", "metadata.generateName is text"),
        ("{name: kb, labels: {a: 1}}", "metadata.labels.a", "put the value in quotes"),
        ("{name: kb, labels: [a]}", "metadata.labels", "must be a map"),
        ("kb", "metadata", "must be a map"),
        ("null", "metadata.name", "Required value"),
    ],
)
def test_metadata(metadata: str, path: str, words: str) -> None:
    found = messages(SERVICE.replace("metadata:\n  name: kb-assistant\n", f"metadata: {metadata}\n"))
    assert any(p == path and words in m for p, m in found), found


def test_a_generated_name_will_do() -> None:
    assert messages(SERVICE.replace("name: kb-assistant", "generateName: kb-")) == []


def test_a_status_in_a_manifest_is_dropped_as_the_api_server_does() -> None:
    assert messages(SERVICE + "status: {replicas: many}\n") == []


def test_rules_around_an_unknown_field_wait_until_it_is_corrected() -> None:
    faulty = SERVICE + "  podTemplate: {spec: {volumes: [{name: data, hostPath: {path: /}}]}}\n"
    assert [p for p, _ in messages(faulty)] == ["spec.podTemplate.spec.volumes[0].hostPath"]


def test_a_value_out_of_bounds_does_not_hide_what_rules_say() -> None:
    found = messages(SERVICE + "  rollout: {steps: [{weight: 150}, {weight: 10}]}\n")
    assert {p for p, _ in found} == {"spec.rollout.steps[0].weight", "spec.rollout.steps"}


def test_a_wrong_type_keeps_rules_from_being_evaluated_on_it() -> None:
    found = messages(SERVICE + "  rollout: {steps: [{weight: many}, {weight: 10}]}\n")
    assert [p for p, _ in found] == ["spec.rollout.steps[0].weight"]


def test_an_object_of_an_unknown_kind_is_an_error_of_the_caller() -> None:
    with pytest.raises(KeyError):
        check_object({"kind": "Pod"})


ALPHABET = st.sampled_from(string.printable + "é😀\x00\x7f\u2028\ud800")
FIELD = st.sampled_from(("spec", "model", "uri", "slos", "engine", "extraArgs", "metadata", "name", "x", "1", "<<"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(ALPHABET, max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELD, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.text(ALPHABET, max_size=200))
@example("&a [*a]")
@example("a: &a\n  b: *a\n")
@example("!!int x")
@example("%YAML 9\n---\n")
@example("? ? ?")
@example("{1e999: .nan, .inf: 2}")
def test_no_text_raises(text: str) -> None:
    validate(text)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(EXAMPLES) - 1), st.integers(0, 400), st.text(ALPHABET, max_size=6))
def test_no_damaged_manifest_raises(row: int, position: int, noise: str) -> None:
    text = rejected_yaml(EXAMPLES[row])
    validate(text[:position] + noise + text[position:])


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(FIELD, VALUES, max_size=4))
def test_no_object_raises(spec: dict[str, object]) -> None:
    for kind in BASES:
        check_object({"apiVersion": "firsttoken.dev/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": spec})
