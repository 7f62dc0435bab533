"""Where weights come from: what each scheme of `spec.model.uri` adds to the engine's pod."""

import posixpath
from dataclasses import dataclass, field
from typing import Any

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.manifests.canonical import canonical_quantity
from firsttoken.manifests.errors import UnsupportedPlan

CACHE_PATH = "/firsttoken/cache"
MODEL_PATH = "/models"

# The names AWS SDKs read. Session token and endpoint are for temporary keys and S3-compatible stores.
_S3_KEYS = (("AWS_ACCESS_KEY_ID", False), ("AWS_SECRET_ACCESS_KEY", False))
_S3_OPTIONAL = (("AWS_SESSION_TOKEN", True), ("AWS_ENDPOINT_URL", True))


@dataclass(frozen=True)
class ModelSource:
    """What vLLM is asked to serve, and what the pod needs for it. `remote`: weights come over the network at start."""

    model: str
    remote: bool
    args: dict[str, str] = field(default_factory=dict)
    env: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    mounts: list[dict[str, Any]] = field(default_factory=list)


def model_source(model: ModelSpec) -> ModelSource:
    """The source for `model.uri`. Raises UnsupportedPlan for a scheme the API would have refused."""
    scheme, _, rest = model.uri.partition("://")
    renderers = {"hf": _hugging_face, "pvc": _claim, "oci": _image, "s3": _s3}
    if scheme not in renderers:
        raise UnsupportedPlan(f"unknown model source {model.uri!r}: use hf://, pvc://, oci:// or s3://")
    return renderers[scheme](model, rest)


def served_name(model: ModelSpec) -> str:
    """Name clients ask for: `model.name`, or the last part of the URI without tag and digest."""
    if model.name:
        return model.name
    last = model.uri.partition("://")[2].rstrip("/").rpartition("/")[2]
    return last.partition("@")[0].partition(":")[0] if model.uri.startswith("oci://") else last


def _hugging_face(model: ModelSpec, repository: str) -> ModelSource:
    env: list[dict[str, Any]] = [{"name": "HF_HOME", "value": f"{CACHE_PATH}/huggingface"}]
    if model.credentials:
        env.append(_secret("HF_TOKEN", model.credentials.name, model.credentials.key))
    args = {"revision": model.revision} if model.revision else {}
    return ModelSource(
        repository.rstrip("/"),
        remote=True,
        args=args,
        env=env,
        volumes=[{"name": "firsttoken-cache", **_cache(model)}],
        mounts=[{"name": "firsttoken-cache", "mountPath": CACHE_PATH}],
    )


def _cache(model: ModelSpec) -> dict[str, Any]:
    if model.cache and model.cache.claim_name:
        return {"persistentVolumeClaim": {"claimName": model.cache.claim_name}}
    if model.cache and model.cache.size_limit:
        return {"emptyDir": {"sizeLimit": canonical_quantity(model.cache.size_limit)}}
    return {"emptyDir": {}}


def _claim(_: ModelSpec, rest: str) -> ModelSource:
    claim, path = rest.partition("/")[::2]
    # normpath of an absolute path can't leave it: `pvc://claim/../x` stays inside the mount.
    return _local(
        MODEL_PATH + posixpath.normpath(f"/{path}").rstrip("/"),
        {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}},
    )


def _image(_: ModelSpec, reference: str) -> ModelSource:
    return _local(MODEL_PATH, {"image": {"reference": reference, "pullPolicy": "IfNotPresent"}})


def _local(path: str, volume: dict[str, Any]) -> ModelSource:
    return ModelSource(
        path,
        remote=False,
        # Everything is on the volume; a look-up on the hub would only delay the start or fail it.
        env=[{"name": "HF_HUB_OFFLINE", "value": "1"}],
        volumes=[{"name": "firsttoken-model", **volume}],
        mounts=[{"name": "firsttoken-model", "mountPath": MODEL_PATH, "readOnly": True}],
    )


def _s3(model: ModelSpec, _: str) -> ModelSource:
    keys = (*_S3_KEYS, *_S3_OPTIONAL) if model.credentials else ()
    secret = model.credentials.name if model.credentials else ""
    return ModelSource(
        model.uri.rstrip("/"),
        remote=True,
        # vLLM's own loader streams from the bucket into GPU memory; only config and tokenizer touch the disk.
        args={"load-format": "runai_streamer"},
        env=[
            {"name": "HF_HOME", "value": f"{CACHE_PATH}/huggingface"},
            *(_secret(key, secret, key, optional=optional) for key, optional in keys),
        ],
        volumes=[{"name": "firsttoken-cache", **_cache(model)}],
        mounts=[{"name": "firsttoken-cache", "mountPath": CACHE_PATH}],
    )


def _secret(variable: str, name: str, key: str, *, optional: bool = False) -> dict[str, Any]:
    reference: dict[str, Any] = {"name": name, "key": key}
    if optional:
        reference["optional"] = True
    return {"name": variable, "valueFrom": {"secretKeyRef": reference}}
