"""The loop around `decide`: gather, decide, act, and what happens when one of them fails."""

import asyncio
import logging
import random
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

from firsttoken.manifests.images import Images
from firsttoken.measurement.blocks import Measurements
from firsttoken.reconcile import Decision, Event, Observation, decide
from firsttoken.reconcile.failure import failed_status
from firsttoken.reconcile.objects import ref
from firsttoken.reconcile.ratios import ratios_of
from firsttoken_operator import metrics
from firsttoken_operator.act import apply_objects, finish, sync_pods, write_status
from firsttoken_operator.cluster import Cluster, ClusterError
from firsttoken_operator.contest import Contest, managers
from firsttoken_operator.envoys import EnvoyAsker
from firsttoken_operator.gather import Key, ask_envoys, gather, look_up_unseen
from firsttoken_operator.hub import Hub
from firsttoken_operator.kinds import REVISION, SERVICE
from firsttoken_operator.measuring import Fleet
from firsttoken_operator.workqueue import Workqueue

log = logging.getLogger("firsttoken")

RESYNC_SECONDS = 600.0  # a look without any event, against whatever no watch tells of
REJECTED_SECONDS = 60.0  # what the API server refused is tried again this often
_FAILURES_TO_TELL = 3  # a blip is nothing to put into the status


class Reconciler:
    """Reconciles services by key. One instance per operator process."""

    def __init__(
        self,
        cluster: Cluster,
        queue: Workqueue[Key],
        images: Images,
        *,
        ask_envoys: bool = True,
        pod_proxy: str | None = None,
        hub: Hub | None = None,
        fleet: Fleet | None = None,
    ) -> None:
        self._cluster, self._queue, self._images = cluster, queue, images
        self._hub = hub  # None: nobody is asked about models
        self._fleet = fleet  # None: nobody is asked about measurements
        self._asker = EnvoyAsker(proxy=pod_proxy) if ask_envoys else None  # None: there is no way to pods from here
        self._contest = Contest()
        self._replaying = asyncio.Lock()
        self._failures: Counter[Key] = Counter()

    async def handle(self, key: Key) -> None:
        """One reconcile of one service. Never raises: failures are logged, counted and retried ever more slowly."""
        started = time.monotonic()
        result = "error"
        try:
            again = await self._reconcile(key)
            result = "ok"
        except ClusterError as error:
            result = "refused" if error.is_refusal else "retry"
            pause = self._queue.retry(key, error.retry_after or 0.0)
            log.warning("%s/%s: %s; again in %.1f s", *key, error, pause)
            await self._failed(key, "ApiServerRefuses", str(error))
        except (OSError, TimeoutError) as error:
            result = "unreachable"
            pause = self._queue.retry(key)
            log.warning("%s/%s: API server not reached: %r; again in %.1f s", *key, error, pause)
        except Exception as error:  # a defect of ours must not stop the other services
            pause = self._queue.retry(key)
            log.exception("%s/%s: unexpected; again in %.1f s", *key, pause)
            await self._failed(key, "InternalError", f"the operator failed on this service: {error!r}; see its log")
        else:
            self._queue.succeeded(key)
            self._failures.pop(key, None)
            if again is not None:
                self._queue.add_after(key, again)
        finally:
            metrics.RECONCILES.labels(result).inc()
            metrics.RECONCILE_SECONDS.observe(time.monotonic() - started)

    async def _reconcile(self, key: Key) -> float | None:
        """Returns when to look again without an event, seconds; None if the service is gone."""
        observation = await gather(self._cluster, key, self._images, self._hub)
        if observation is None:
            self._queue.forget(key)
            if self._asker is not None:
                self._asker.forget(key)
            return None
        if self._fleet is not None:
            observation = await self._measured(observation, self._fleet.of(key))
        observation, decision = await self._decide(key, observation)
        apply, later, wait = self._contest.split(observation.service["metadata"]["uid"], decision.apply)
        decision = replace(decision, apply=apply, events=(*decision.events, *self._contested(observation, later)))
        if apply:
            log.info("%s/%s: applying %s", *key, ", ".join(str(ref(o)) for o in apply))
        rejected = await apply_objects(self._cluster, apply)
        await sync_pods(self._cluster, key[0], decision.sync)
        if rejected:
            decision = decide(replace(observation, rejected=rejected))
        await finish(self._cluster, observation, decision)
        metrics.count_writes(decision)
        resync = RESYNC_SECONDS * (0.9 + 0.2 * random.random())  # noqa: S311 - jitter, not a secret
        if rejected:
            return REJECTED_SECONDS
        return min(t for t in (resync, wait, decision.requeue_after) if t is not None)

    async def _measured(self, observation: Observation, found: Measurements) -> Observation:
        """With what came of the measurements: found in a thread, one at a time, so that the others go on meanwhile."""
        name, seen = observation.service["metadata"]["name"], observation
        async with self._replaying:
            ratios = await asyncio.to_thread(ratios_of, found, name, seen.revisions, seen.profiles)
        return replace(observation, measurements=found, ratios=ratios)

    async def _decide(self, key: Key, observation: Observation) -> tuple[Observation, Decision]:
        """Decide, look up names that would be taken for the first time, and decide again if they exist."""
        observation, decision = await self._decide_with_envoys(key, observation)
        foreign, ours = await look_up_unseen(self._cluster, observation, decision.apply)
        if not foreign and not ours:
            return observation, decision
        children = tuple(o for o in ours if o["kind"] != REVISION.kind)
        records = tuple(o for o in ours if o["kind"] == REVISION.kind)
        observation = replace(
            observation,
            foreign=foreign,
            children=(*observation.children, *children),
            revisions=(*observation.revisions, *records),
        )
        return await self._decide_with_envoys(key, observation)

    async def _decide_with_envoys(self, key: Key, observation: Observation) -> tuple[Observation, Decision]:
        """Decide, ask the Envoys only if what they say could change that, and decide again."""
        decision = decide(observation)
        if self._asker is None or not decision.ask or not self._asker.may_ask(key):
            return observation, decision
        observation = replace(observation, envoys=await ask_envoys(self._cluster, key, self._asker))
        return observation, decide(observation)

    def _contested(self, observation: Observation, later: tuple[dict[str, object], ...]) -> tuple[Event, ...]:
        """One event for each object that somebody else has now changed too often."""
        uid = observation.service["metadata"]["uid"]
        seen = {ref(o): o for o in observation.children}
        return tuple(
            Event(
                "Warning",
                "Contested",
                f"{ref(o)} keeps being changed by {managers(seen.get(ref(o)))}; put right rarely",
            )
            for o in later
            if self._contest.is_new(uid, o)
        )

    async def _failed(self, key: Key, reason: str, message: str) -> None:
        """Say in the status what is in the way, if that works and it isn't just a blip."""
        self._failures[key] += 1
        if self._failures[key] < _FAILURES_TO_TELL:
            return
        try:
            service = await self._cluster.get(SERVICE, key[1], key[0])
            status = failed_status(service, reason, message, datetime.now(UTC)) if service is not None else None
            if service is not None and status is not None:
                await write_status(self._cluster, service, status)
        except (ClusterError, OSError, TimeoutError) as error:
            log.warning("%s/%s: the failure can't be told in the status: %s", *key, error)
