"""The loop around `decide`: gather, decide, act, and what happens when one of them fails."""

import logging
import random
import time
from dataclasses import replace

from firsttoken.manifests.images import Images
from firsttoken.reconcile import decide
from firsttoken_operator import metrics
from firsttoken_operator.act import apply_objects, finish, sync_pods
from firsttoken_operator.cluster import Cluster, ClusterError
from firsttoken_operator.gather import Key, gather, look_up_unseen
from firsttoken_operator.workqueue import Workqueue

log = logging.getLogger("firsttoken")

RESYNC_SECONDS = 600.0  # a look without any event, against whatever no watch tells of


class Reconciler:
    """Reconciles services by key. One instance per operator process."""

    def __init__(self, cluster: Cluster, queue: Workqueue[Key], images: Images) -> None:
        self._cluster, self._queue, self._images = cluster, queue, images

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
        except (OSError, TimeoutError) as error:
            result = "unreachable"
            pause = self._queue.retry(key)
            log.warning("%s/%s: API server not reached: %r; again in %.1f s", *key, error, pause)
        except Exception:  # a defect of ours must not stop the other services
            pause = self._queue.retry(key)
            log.exception("%s/%s: unexpected; again in %.1f s", *key, pause)
        else:
            self._queue.succeeded(key)
            if again is not None:
                self._queue.add_after(key, again)
        finally:
            metrics.RECONCILES.labels(result).inc()
            metrics.RECONCILE_SECONDS.observe(time.monotonic() - started)

    async def _reconcile(self, key: Key) -> float | None:
        """Returns when to look again without an event, seconds; None if the service is gone."""
        observation = await gather(self._cluster, key, self._images)
        if observation is None:
            self._queue.forget(key)
            return None
        decision = decide(observation)
        foreign, ours = await look_up_unseen(self._cluster, observation, decision.apply)
        if foreign or ours:
            observation = replace(observation, foreign=foreign, children=(*observation.children, *ours))
            decision = decide(observation)
        if decision.apply:
            log.info(
                "%s/%s: applying %s", *key, ", ".join(f"{o['kind']}/{o['metadata']['name']}" for o in decision.apply)
            )
        rejected = await apply_objects(self._cluster, decision.apply)
        await sync_pods(self._cluster, key[0], decision.sync)
        if rejected:
            decision = decide(replace(observation, rejected=rejected))
        await finish(self._cluster, observation, decision)
        metrics.count_writes(decision)
        if rejected:
            return 60.0
        resync = RESYNC_SECONDS * (0.9 + 0.2 * random.random())  # noqa: S311 - jitter, not a secret
        return min(resync, decision.requeue_after if decision.requeue_after is not None else resync)
