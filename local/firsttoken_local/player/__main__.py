"""The first process of the player's namespaces: ``python -m firsttoken_local.player SPECIFICATION``.

Run by ``unshare`` in the state directory; further arguments are ignored. Its end is the end of all that it started.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from firsttoken_local.player import API_SOCKET, FOLDER, OUT_SOCKET
from firsttoken_local.player.api import Api, Key, Object, Store
from firsttoken_local.player.pods import PlayedPod
from firsttoken_local.player.programs import ProcessProgram
from firsttoken_local.player.proxy import MOST_HEAD, Proxy
from firsttoken_local.player.roles import Cast, compile_clock, playable, router_program
from firsttoken_local.player.streams import forwarder
from firsttoken_local.player.volumes import PodFolder

SELECTOR = "?labelSelector=app.kubernetes.io/part-of%3Dfirsttoken"
RESOLVER = Path("/etc/resolv.conf")


def namespace(spec: dict[str, Any]) -> None:
    """All pod addresses are local here, and names are asked of our own DNS."""
    run = partial(subprocess.run, check=True)
    run([spec["ip"], "link", "set", "lo", "up"])
    run([spec["ip"], "route", "add", "local", spec["pods"], "dev", "lo"])
    own = Path(FOLDER) / "resolv.conf"
    own.write_text("nameserver 127.0.0.1\n")
    if RESOLVER.exists():
        run([spec["mount"], "--bind", str(own.resolve()), str(RESOLVER.resolve())])


class Player:
    """Keeps a program for each pod that is to be played."""

    def __init__(self, api: Api, cast: Cast, folder: Path) -> None:
        self._api, self._cast, self._folder = api, cast, folder
        self._played: dict[str, PlayedPod] = {}  # by uid
        self._uids: dict[Key, str] = {}
        self._ending: set[asyncio.Task[None]] = set()
        collection: Callable[[str, Callable[[Key, Object | None], None]], Store] = partial(Store, api)
        self.maps = collection(f"/api/v1/configmaps{SELECTOR}", self._map_changed)
        self.pods = collection(f"/api/v1/pods{SELECTOR}", self._pod_changed)
        self.slices = collection("/apis/discovery.k8s.io/v1/endpointslices", lambda _key, _slice: None)

    async def follow(self) -> None:
        """Play, for ever."""
        later = [asyncio.create_task(store.follow()) for store in (self.maps, self.slices)]
        await self.maps.complete.wait()
        await asyncio.gather(self.pods.follow(), *later)

    def _pod_changed(self, key: Key, pod: Object | None) -> None:
        uid = pod["metadata"]["uid"] if pod else None
        before = self._uids.get(key)
        if before is not None and before != uid:
            self._end(self._played.pop(before))
            del self._uids[key]
        if pod is None or not playable(pod):
            return
        leaving = "deletionTimestamp" in pod["metadata"]
        if uid in self._played:
            if leaving:
                self._played[uid].leave(pod)
        elif "podIP" in pod.get("status", {}) or leaving:
            self._start(key, pod, leaving=leaving)

    def _start(self, key: Key, pod: Object, *, leaving: bool) -> None:
        uid = pod["metadata"]["uid"]
        pod["status"].setdefault("podIP", "")  # deleted before it had one
        folder = PodFolder(self._folder / uid, pod)
        folder.folder.mkdir(parents=True, exist_ok=True)
        self._sync(folder, key[0])
        self._uids[key] = uid
        self._played[uid] = PlayedPod(self._api, pod, folder, self._cast.log(pod), self._cast.program)
        if leaving:
            self._played[uid].leave(pod)

    def _end(self, played: PlayedPod) -> None:
        task = asyncio.create_task(played.kill())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _map_changed(self, key: Key, _: Object | None) -> None:
        for pod_key, uid in self._uids.items():
            if pod_key[0] == key[0] and key[1] in self._played[uid].folder.config_maps.values():
                self._sync(self._played[uid].folder, key[0])

    def _sync(self, folder: PodFolder, namespace: str) -> None:
        """ConfigMaps reach pods at once, as after a touch of the pod's annotations (DESIGN §4)."""
        for volume, name in folder.config_maps.items():
            found = self.maps.objects.get((namespace, name))
            if found is not None:
                folder.sync(volume, found.get("data") or {}, translate=volume == "bootstrap")


async def main(spec: dict[str, Any]) -> None:
    """Play until a signal asks for the end."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    logs, here = Path(spec["logs"]), Path(spec["folder"])
    into = forwarder(lambda: asyncio.open_unix_connection(API_SOCKET))
    await asyncio.start_server(into, "127.0.0.1", spec["apiserver"])
    dns = ProcessProgram([spec["coredns"], f"-conf={spec['corefile']}"], {}, logs / "player-dns.log", here)
    await dns.start()
    api = Api(Path(spec["kubeconfig"]))
    player = Player(api, Cast(api, Path(spec["envoy"]), router_program(), logs), here / "pods")
    await asyncio.start_unix_server(Proxy(player.slices.objects).serve, OUT_SOCKET, limit=MOST_HEAD)
    compiling = asyncio.create_task(asyncio.to_thread(compile_clock))
    tasks = {asyncio.create_task(one) for one in (player.follow(), dns.ended(), stop.wait())}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    compiling.cancel()
    await api.close()
    if not stop.is_set():
        raise SystemExit("the player or its DNS ended")


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text())
    Path(OUT_SOCKET).unlink(missing_ok=True)
    namespace(given)
    asyncio.run(main(given))
