"""One played pod, from its address to its end, as a kubelet would lead it."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from firsttoken_local.player.api import Api
from firsttoken_local.player.programs import Program, Silence, run_hook
from firsttoken_local.player.volumes import PodFolder

Object = dict[str, Any]
Make = Callable[[Object, PodFolder], Awaitable[Program]]

EAGER_S = 0.1  # between two looks at a pod that is not ready yet
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 8.0
ASK = aiohttp.ClientTimeout(total=2.0)


class PlayedPod:
    """Starts the pod's program, tells its readiness, starts it again when it ends, and lets it finish when deleted."""

    def __init__(self, api: Api, pod: Object, folder: PodFolder, log: Path, make: Make) -> None:
        self._api, self._pod, self.folder, self._log, self._make = api, pod, folder, log, make
        self._program: Program | None = None
        self._ready: bool | None = None
        self._restarts = 0
        self._leaving = asyncio.Event()
        self.task = asyncio.create_task(self._lead())

    @property
    def uid(self) -> str:
        """Of the pod."""
        return str(self._pod["metadata"]["uid"])

    def leave(self, pod: Object) -> None:
        """The pod is being deleted."""
        self._pod = pod
        self._leaving.set()

    async def kill(self) -> None:
        """The pod is gone: so is everything of it, at once."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if self._program is not None:
            await self._program.stop(0)
        self.folder.remove()

    async def _lead(self) -> None:
        life = asyncio.create_task(self._live())
        leaving = asyncio.create_task(self._leaving.wait())
        try:
            await asyncio.wait([life, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (life, leaving):
                task.cancel()
            await asyncio.gather(life, leaving, return_exceptions=True)
        if self._leaving.is_set():
            await self._finish()

    async def _live(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            self._program = None
            try:
                program = await self._make(self._pod, self.folder)
                await program.start()
                self._program = program
                how = await self._watched(program)
            except Exception as error:  # whatever it is: a container that can't start is started again
                how = repr(error)
            self._say(f"ended: {how}")
            self._restarts += 1
            await self._tell(ready=False)
            pause = FIRST_PAUSE_S if time.monotonic() - began > LONGEST_PAUSE_S else min(2 * pause, LONGEST_PAUSE_S)
            await asyncio.sleep(pause)

    async def _watched(self, program: Program) -> str:
        """Tell readiness until the program ends."""
        silent = isinstance(program, Silence)
        probing = asyncio.create_task(self._tell(ready=True) if silent else self._probe())
        try:
            return await program.ended()
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)

    async def _probe(self) -> None:
        probe = self._pod["spec"]["containers"][0]["readinessProbe"]
        failures = 0
        async with aiohttp.ClientSession(timeout=ASK) as session:
            while True:
                healthy = await _healthy(session, self._url(probe["httpGet"]))
                failures = 0 if healthy else failures + 1
                if healthy or failures >= probe.get("failureThreshold", 3):
                    await self._tell(ready=healthy)
                await asyncio.sleep(probe.get("periodSeconds", 10) if self._ready else EAGER_S)

    def _url(self, get: Object) -> str:
        ports = {port["name"]: port["containerPort"] for port in self._pod["spec"]["containers"][0]["ports"]}
        return f"http://{self.folder.address}:{ports.get(get['port'], get['port'])}{get['path']}"

    async def _tell(self, *, ready: bool) -> None:
        if ready == self._ready:
            return
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        container = self._pod["spec"]["containers"][0]
        state = {"running": {"startedAt": now}} if ready or self._ready is None else {"waiting": {"reason": "NotReady"}}
        status = {
            "conditions": [
                {"type": kind, "status": "True" if ready else "False", "lastTransitionTime": now}
                for kind in ("Ready", "ContainersReady")
            ],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": ready,
                    "started": True,
                    "restartCount": self._restarts,
                    "state": state,
                }
            ],
        }
        try:
            body = {"status": status, "metadata": {"uid": self.uid}}
            await self._api.request("PATCH", f"{self._path}/status", body, "application/strategic-merge-patch+json")
        except aiohttp.ClientError as error:
            self._say(f"its status was not taken: {error}")
            return
        self._ready = ready
        self._say("ready" if ready else "not ready")

    async def _finish(self) -> None:
        """The hook before the end, SIGTERM, and the end of the pod, within its grace period."""
        grace = float(self._pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        deadline = time.monotonic() + grace
        hook = self._pod["spec"]["containers"][0].get("lifecycle", {}).get("preStop", {})
        if self._program is not None and grace and not isinstance(self._program, Silence):
            if "sleep" in hook:
                await asyncio.sleep(min(hook["sleep"]["seconds"], grace))
            if "exec" in hook:
                argv = [self.folder.translated(word) for word in hook["exec"]["command"]]
                await run_hook(argv, self._log, grace)
        if self._program is not None:
            await self._program.stop(max(0.0, deadline - time.monotonic()))
            self._program = None
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        try:
            await self._api.request("DELETE", self._path, options)
        except aiohttp.ClientError as error:
            self._say(f"it could not be removed: {error}")

    @property
    def _path(self) -> str:
        meta = self._pod["metadata"]
        return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"

    def _say(self, text: str) -> None:
        with self._log.open("a") as log:
            log.write(f"player: {text}\n")


async def _healthy(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as answer:
            return 200 <= answer.status < 400
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False
