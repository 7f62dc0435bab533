"""Which program each pod of a service is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.manifests import names
from firsttoken.manifests.environment import SETTINGS_DIRECTORY, SETTINGS_KEY
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.timing.device import device_from_profile
from firsttoken.planning.timing.step import StepModel
from firsttoken.simulation.measured_models import measured_facts
from firsttoken.simulation.step_table import step_table
from firsttoken.simulation.telemetry import Telemetry
from firsttoken_local.engine_server.driver import Driver, epoch_clock
from firsttoken_local.engine_server.from_revision import Recipe, recipe
from firsttoken_local.engine_server.server import EngineServer
from firsttoken_local.errors import LocalError
from firsttoken_local.player import ROLES
from firsttoken_local.player.api import Api
from firsttoken_local.player.programs import ProcessProgram, Program, ServerProgram, Silence
from firsttoken_local.player.volumes import PodFolder

Object = dict[str, Any]
GROUP = "/apis/firsttoken.dev/v1alpha1"
TOKEN_S = 24 * 3600


def playable(pod: Object) -> bool:
    """Whether this pod is played here."""
    return pod["metadata"].get("labels", {}).get(names.ROLE_LABEL) in ROLES


class Cast:
    """Makes the programs."""

    def __init__(self, api: Api, envoy: Path, router: Path, logs: Path) -> None:
        self._api, self._envoy, self._router, self._logs = api, envoy, router, logs
        self._recipes: dict[tuple[str, str], Recipe] = {}

    def log(self, pod: Object) -> Path:
        """The log of a pod."""
        return self._logs / f"pod-{pod['metadata']['namespace']}-{pod['metadata']['name']}.log"

    async def program(self, pod: Object, folder: PodFolder) -> Program:
        """The pod's program, not started yet.

        Raises:
            LocalError, aiohttp.ClientError: it can't be played.
        """
        makers = {"serve": self._engine, names.ROUTER_ROLE: self._routing, names.GATEWAY_ROLE: self._gateway}
        return await makers[pod["metadata"]["labels"][names.ROLE_LABEL]](pod, folder)

    async def _gateway(self, pod: Object, folder: PodFolder) -> Program:
        return self._process(self._envoy, pod, folder, {})

    async def _routing(self, pod: Object, folder: PodFolder) -> Program:
        """With the pod's own service account: what it may see is what its Role says."""
        meta = pod["metadata"]
        record = await self._record(meta["namespace"], meta["labels"][names.REVISION_LABEL])
        if record["spec"]["plan"]["layout"] != "Colocated":
            return self._silence(pod, "prefill and decode pods are not played: no KV is fetched from another pod here")
        account = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{pod['spec']['serviceAccountName']}/token"
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_S},
        }
        token = (await self._api.request("POST", account, asked))["status"]["token"]
        path = folder.folder / "kubeconfig"
        path.write_text(yaml.safe_dump(self._api.kubeconfig(token)))
        return self._process(self._router, pod, folder, {"KUBECONFIG": str(path)})

    def _process(self, binary: Path, pod: Object, folder: PodFolder, environment: Mapping[str, str]) -> Program:
        arguments = [folder.translated(word) for word in pod["spec"]["containers"][0].get("args", [])]
        return ProcessProgram([str(binary), *arguments], environment, self.log(pod), folder.folder)

    async def _engine(self, pod: Object, folder: PodFolder) -> Program:
        labels, container = pod["metadata"]["labels"], pod["spec"]["containers"][0]
        role = labels[names.ROLE_LABEL]
        try:
            found = await self._recipe(pod["metadata"]["namespace"], labels[names.REVISION_LABEL], role)
        except LocalError as error:
            return self._silence(pod, error.message)
        variables = {one["name"]: one.get("value", "") for one in container["env"]}
        bounds = [int(bound) for bound in variables["FIRSTTOKEN_PROMPT_BUCKETS"].split(",")]
        mounted = folder.path(SETTINGS_DIRECTORY)
        driver = Driver(
            found.settings,
            found.clock,
            Telemetry(bounds, backend=found.backend),
            now=epoch_clock(),
            live=mounted / SETTINGS_KEY if mounted else None,
            pod_uid=pod["metadata"]["uid"],
            say=self._teller(pod),
        )
        server = EngineServer(driver, found.limits)
        return ServerProgram(server.serving(folder.address, names.ENGINE_PORT))

    def _teller(self, pod: Object) -> Callable[[str], None]:
        def say(text: str) -> None:
            with self.log(pod).open("a") as log:
                log.write(f"{text}\n")

        return say

    def _silence(self, pod: Object, why: str) -> Program:
        self._teller(pod)(f"player: this pod answers nobody: {why}")
        return Silence()

    async def _record(self, namespace: str, revision: str) -> Object:
        return await self._api.request("GET", f"{GROUP}/namespaces/{namespace}/inferencerevisions/{revision}")

    async def _recipe(self, namespace: str, revision: str, role: str) -> Recipe:
        """Read once for each revision: it never changes."""
        key = (f"{namespace}/{revision}", role)
        if key not in self._recipes:
            record = await self._record(namespace, revision)
            listed = (await self._api.request("GET", f"{GROUP}/acceleratorprofiles"))["items"]
            profiles = {one["metadata"]["name"]: AcceleratorProfileSpec.model_validate(one["spec"]) for one in listed}
            self._recipes[key] = await asyncio.to_thread(_warm, record, role, profiles)
        return self._recipes[key]


def _warm(record: Object, role: str, profiles: Mapping[str, AcceleratorProfileSpec]) -> Recipe:
    found = recipe(record, role, profiles)
    found.clock.step_seconds([(0, 1)], [1])  # compiles it, once for a version
    return found


def compile_clock() -> None:
    """Compile what tells a step's time, once for a version, before a pod waits for it."""
    facts = measured_facts("meta-llama/Llama-3.1-8B", "bf16")
    assert not isinstance(facts, str)  # noqa: S101 - it is in the catalogue
    model = StepModel(facts, device_from_profile(catalogue()["nvidia-h100-80gb"]))
    step_table(model, 1, 1).step_seconds([(0, 1)], [1])


def router_program() -> Path:
    """vllm-router of this environment."""
    return Path(sys.executable).with_name("vllm-router")
