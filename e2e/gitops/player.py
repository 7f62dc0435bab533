"""A GitOps controller as an operator gets to see one: what Argo CD and Flux do to a namespace, over and over.

Each round reads a folder, asks by a dry run how the live objects differ from it, applies everything by server-side
apply under a field manager of its own, by force as both do, and prunes what it once applied and the folder doesn't hold
any more. Between rounds it looks at the health of the services, far more often, as Argo CD does on each change.
"""

from __future__ import annotations

import copy
import json
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from e2e.gitops.verdicts import Look, look_at
from e2e.support import CHILDREN, GROUP, Object, Space

from firsttoken_local.apply import in_order, read_objects
from firsttoken_local.errors import LocalError
from firsttoken_local.kube import ApiError, KubeClient

INTERVAL_S = 10.0
LOOK_S = 0.2
MANAGER = "argocd-controller"  # Argo CD's name; Flux's is kustomize-controller
TRACKING = "argocd.argoproj.io/tracking-id"
KINDS = ((GROUP, "InferenceService"), *CHILDREN)
_SERVERS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")


@dataclass(frozen=True)
class Applied:
    """What came of one object in one round. `drift` names where live differed from the folder before the apply."""

    drift: tuple[str, ...] = ()
    conflict: str = ""  # what a manager without force would have been told
    refused: str = ""


@dataclass(frozen=True)
class Round:
    """One sync; `applied` is by kind/name, `fault` says why the folder could not be read."""

    began: float
    applied: dict[str, Applied] = field(default_factory=dict)
    pruned: tuple[str, ...] = ()
    fault: str = ""

    @property
    def in_sync(self) -> bool:
        """Whether nothing was to be done, and nobody else held a field of the folder with another value."""
        untouched = not any(a.drift or a.conflict or a.refused for a in self.applied.values())
        return untouched and not self.pruned and not self.fault


class Player:
    """Plays until told to stop; what it saw stays in `rounds` and `looks`. `ignored` are paths like Argo CD's
    `jsonPointers` (with RespectIgnoreDifferences) and Flux's `spec.ignore`: what is live there is taken over.
    """

    def __init__(self, space: Space, folder: Path, interval_s: float = INTERVAL_S, ignored: Sequence[str] = ()) -> None:
        self.rounds: list[Round] = []
        self.looks: list[Look] = []
        self.propagation = "Foreground"  # Argo CD's default; Flux deletes in the background
        self._space, self._folder, self._interval_s, self._ignored = space, folder, interval_s, tuple(ignored)
        self._client = KubeClient(space.cluster.user_kubeconfig("gitops", ["system:masters"]))
        self._begun = 0
        self._fault = ""
        self._stopped, self._busy = threading.Event(), threading.Lock()

    def play(self) -> None:
        """The thread."""
        due = time.monotonic()
        try:
            while not self._stopped.is_set():
                if time.monotonic() >= due:
                    due = time.monotonic() + self._interval_s
                    with self._busy:
                        self._begun += 1
                        self.rounds.append(self._sync())
                self.looks.extend(look_at(self._client, self._space.name))
                self._stopped.wait(LOOK_S)
        except Exception:
            self._fault = traceback.format_exc()

    def stop(self) -> None:
        """Let the thread end after what it is doing."""
        self._stopped.set()

    @contextmanager
    def between_rounds(self) -> Iterator[None]:
        """No round runs inside the block: what is done there is seen by the next one as a whole."""
        with self._busy:
            yield

    def check(self) -> None:
        """Raise what ended the thread, if anything did."""
        if self._fault:
            raise LocalError("the player failed", self._fault)

    def wait(self, what: str, holds: Callable[[], Any], timeout_s: float = 60.0) -> Any:
        """Wait for a condition while the player plays."""

        def checked() -> Any:
            self.check()
            return holds()

        return self._space.wait(what, checked, timeout_s)

    def wait_rounds(self, count: int) -> list[Round]:
        """Wait for rounds that begin after this call, and return them."""
        first = self._begun
        self.wait(f"{count} rounds", lambda: len(self.rounds) >= first + count)
        return self.rounds[first : first + count]

    def settle(self, name: str, health: str) -> Look:
        """Wait for one more round and then for a health, as `argocd app sync` and `argocd app wait --health` do."""
        self.wait_rounds(1)
        return self.wait_health(name, health)

    def wait_health(self, name: str, health: str) -> Look:
        """Wait until a service is seen in a health from now on."""
        known = len(self.looks)

        def seen() -> Look | None:
            newest = [look for look in self.looks[known:] if look.name == name][-1:]
            return newest[0] if newest and newest[0].health == health else None

        result: Look = self.wait(f"{name} to be {health}", seen)
        return result

    def of(self, name: str) -> list[Look]:
        """All looks at a service."""
        return [look for look in self.looks if look.name == name]

    def story(self, name: str) -> list[tuple[int, str]]:
        """Generation and health of a service, one entry for each change."""
        told: list[tuple[int, str]] = []
        for look in self.of(name):
            if told[-1:] != [(look.generation, look.health)]:
                told.append((look.generation, look.health))
        return told

    def _sync(self) -> Round:
        started = Round(time.monotonic())
        try:
            objects = in_order(read_objects([self._folder]))
        except LocalError as error:
            return replace(started, fault=str(error))
        applied = {key(obj): self._apply(obj) for obj in objects}
        return replace(started, applied=applied, pruned=self._prune(applied))

    def _apply(self, obj: Object) -> Applied:
        annotations = {**(obj["metadata"].get("annotations") or {}), TRACKING: f"models:{key(obj)}"}
        meta = {**obj["metadata"], "namespace": self._space.name, "annotations": annotations}
        live = self._client.get(obj["apiVersion"], obj["kind"], meta["name"], self._space.name)
        wanted = taken_over({**obj, "metadata": meta}, live, self._ignored)
        conflict = self._conflict(wanted)
        try:
            drift = tuple(differences(bare(live), bare(self._patch(wanted, dryRun="All", force="true"))))
            self._patch(wanted, force="true")
        except ApiError as error:
            return Applied(conflict=conflict, refused=error.message)
        return Applied(drift, conflict)

    def _conflict(self, wanted: Object) -> str:
        try:
            self._patch(wanted, dryRun="All", force="false")
        except ApiError as error:
            return error.message if error.status == 409 else ""
        return ""

    def _patch(self, obj: Object, **query: str) -> Object:
        path = self._client.resource(obj["apiVersion"], obj["kind"]).path(self._space.name, obj["metadata"]["name"])
        query |= {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        return self._client.request("PATCH", f"{path}?{urlencode(query)}", obj, "application/apply-patch+yaml")

    def _prune(self, wanted: dict[str, Applied]) -> tuple[str, ...]:
        """Delete whatever carries our mark and is in no file: also an object that the mark was copied to."""
        pruned = []
        for api_version, kind in KINDS:
            for obj in self._client.list(api_version, kind, self._space.name):
                ours = TRACKING in (obj["metadata"].get("annotations") or {})
                if not ours or key(obj) in wanted or obj["metadata"].get("deletionTimestamp"):
                    continue
                self._delete(obj)
                pruned.append(key(obj))
        return tuple(pruned)

    def _delete(self, obj: Object) -> None:
        path = self._client.resource(obj["apiVersion"], obj["kind"]).path(self._space.name, obj["metadata"]["name"])
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": self.propagation}
        try:
            self._client.request("DELETE", path, options)
        except ApiError as error:
            if error.status != 404:  # somebody else was faster
                raise


@contextmanager
def playing(
    space: Space, folder: Path, interval_s: float = INTERVAL_S, ignored: Sequence[str] = ()
) -> Iterator[Player]:
    """A player at work for the length of the block; on a failure what it saw is printed."""
    player = Player(space, folder, interval_s, ignored)
    thread = threading.Thread(target=player.play, name=f"gitops-{space.name}", daemon=True)
    thread.start()
    try:
        yield player
    except BaseException:
        print("\n".join(f"{name}: {player.story(name)}" for name in sorted({look.name for look in player.looks})))
        print("\n".join(map(str, player.rounds[-5:])))
        raise
    finally:
        player.stop()
        thread.join(60.0)
        assert not thread.is_alive(), "the player's thread does not end"
    player.check()


def key(obj: Object) -> str:
    """What an object is called here."""
    return f"{obj['kind']}/{obj['metadata']['name']}"


def taken_over(wanted: Object, live: Object | None, pointers: Sequence[str]) -> Object:
    """`wanted` with what is live at the ignored paths; a path that is not live stays as the folder has it."""
    result = copy.deepcopy(wanted)
    for pointer in pointers:
        *parents, last = pointer.strip("/").split("/")
        source: Any = live
        target: Any = result
        for parent in parents:
            source, target = (source or {}).get(parent), target.get(parent, {})
        if last in (source or {}) and last in target:
            target[last] = source[last]
    return result


def bare(obj: Object | None) -> Object | None:
    """An object without what only the API server and controllers write."""
    if obj is None:
        return None
    meta = {k: v for k, v in obj["metadata"].items() if k not in _SERVERS}
    return {**{k: v for k, v in obj.items() if k != "status"}, "metadata": meta}


def differences(live: Any, wanted: Any, path: str = "") -> Iterator[str]:
    """Where two objects differ, as dotted paths; the whole one where nothing is live."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        for name in sorted({*live, *wanted}):
            yield from differences(live.get(name), wanted.get(name), f"{path}.{name}".strip("."))
    elif json.dumps(live, sort_keys=True) != json.dumps(wanted, sort_keys=True):
        yield path or "missing"
