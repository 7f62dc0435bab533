"""One active operator among several replicas, by a Lease; a standby takes over when the leader is gone (S24, K7).

client-go's rules: a holder counts as gone when its Lease has not changed for its duration *by our own clock*, so the
clocks of nodes need not agree; a leader that can't renew stops before a standby may start. Why not the library's:
docs/decisions/0008.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from firsttoken_operator.cluster import Cluster, ClusterError
from firsttoken_operator.kinds import LEASE

log = logging.getLogger("firsttoken")

LEASE_SECONDS = 10  # a standby takes over this long after the leader's last renewal, plus one retry
RENEW_DEADLINE_SECONDS = 7  # a leader that could not renew for so long stops
RETRY_SECONDS = 2
STOP_SECONDS = 10  # work that was cancelled is waited for so long, and then left behind
MOST_TRANSITIONS = 2**31 - 1  # an int32 at the API server, which somebody may have filled


@dataclass
class Candidacy:
    """One replica's claim on a Lease; `identity` must differ between replicas and restarts."""

    cluster: Cluster
    name: str
    namespace: str
    identity: str
    clock: Callable[[], float] = time.monotonic
    fault: str = ""  # why the Lease can't be had, as long as that is not somebody else's turn
    _seen: Any = None
    _seen_at: float = field(default=0.0)

    async def try_to_hold(self) -> bool:
        """Take the Lease, or renew it; False if somebody else holds it or the API server can't be asked."""
        fault = ""
        try:
            return await self._try()
        except ClusterError as error:
            if error.status != 409:  # 409: another one was quicker
                fault = str(error)
        except (OSError, TimeoutError) as error:
            fault = f"API server not reached: {error!r}"
        finally:
            self.fault = f"Lease {self.namespace}/{self.name}: {fault}" if fault else ""
            if fault:
                log.warning("%s", self.fault)
        return False

    async def _try(self) -> bool:
        lease = await self.cluster.get(LEASE, self.name, self.namespace)
        if lease is None:
            await self.cluster.create(self._lease(None))
        elif self._may_take(lease.get("spec") or {}):
            await self.cluster.replace(self._lease(lease))
        else:
            return False
        return True

    async def release(self) -> None:
        """Give the Lease back if it is ours, so that a standby starts at once; failing that it runs out."""
        try:
            lease = await self.cluster.get(LEASE, self.name, self.namespace)
            if lease is not None and lease["spec"].get("holderIdentity") == self.identity:
                released = self._lease(lease)
                released["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self.cluster.replace(released)
        except (ClusterError, OSError, TimeoutError) as error:
            log.warning("the Lease could not be given back: %s", error)

    def _may_take(self, spec: dict[str, Any]) -> bool:
        holder = spec.get("holderIdentity")
        record = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if record != self._seen:
            self._seen, self._seen_at = record, self.clock()
        if not holder or holder == self.identity:
            return True
        return self.clock() - self._seen_at >= float(spec.get("leaseDurationSeconds") or LEASE_SECONDS)

    def _lease(self, before: dict[str, Any] | None) -> dict[str, Any]:
        old = (before or {}).get("spec") or {}
        mine = old.get("holderIdentity") == self.identity
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        transitions = int(old.get("leaseTransitions") or 0)
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": before["metadata"] if before else {"name": self.name, "namespace": self.namespace},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": LEASE_SECONDS,
                "acquireTime": old.get("acquireTime", now) if mine else now,
                "renewTime": now,
                "leaseTransitions": min(MOST_TRANSITIONS, transitions + (before is not None and not mine)),
            },
        }


async def lead(
    candidacy: Candidacy, work: Callable[[], Awaitable[None]], faults: Callable[[], list[str]] = list
) -> bool:
    """Wait for the Lease, then run `work` while it is held. True if `work` ended, False if the Lease was lost.

    A lost Lease cancels `work`, which may hang then: the caller ends the process. When `work` ends by itself, or
    `faults` says for some time that it is dead, the Lease is given back: a standby does better.
    """
    log.info("%s stands by for Lease %s/%s", candidacy.identity, candidacy.namespace, candidacy.name)
    while not await candidacy.try_to_hold():  # noqa: ASYNC110 - the event is at the API server
        await asyncio.sleep(RETRY_SECONDS)
    log.info("%s leads", candidacy.identity)
    working = asyncio.ensure_future(work())
    holding = asyncio.create_task(_hold(candidacy))
    watching = asyncio.create_task(until_dead(faults))
    tasks = {working, holding, watching}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    ended, dead = working.done(), watching.done()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=STOP_SECONDS)
    if ended or dead:
        await candidacy.release()
    if not ended:
        log.error("the Lease %s/%s was %s", candidacy.namespace, candidacy.name, "given back" if dead else "lost")
        return False
    working.result()  # raises what ended it
    return True


async def until_dead(faults: Callable[[], list[str]]) -> None:
    """Until `faults` has named some for STOP_SECONDS, longer than an orderly end takes (K1)."""
    since: float | None = None
    while since is None or time.monotonic() - since < STOP_SECONDS:
        await asyncio.sleep(RETRY_SECONDS)
        found = faults()
        since = (since or time.monotonic()) if found else None
    log.error("this process does not work any more: %s", "; ".join(found))


async def _hold(candidacy: Candidacy) -> None:
    """Renew until that fails for too long."""
    renewed = candidacy.clock()
    while candidacy.clock() - renewed < RENEW_DEADLINE_SECONDS:
        await asyncio.sleep(RETRY_SECONDS)
        try:
            # A request that hangs must not carry the leader past its deadline.
            left = max(0.1, RENEW_DEADLINE_SECONDS - (candidacy.clock() - renewed))
            # (wait_for of Python 3.11 can swallow a cancellation, and the Lease would be taken again.)
            async with asyncio.timeout(left):
                if await candidacy.try_to_hold():
                    renewed = candidacy.clock()
        except TimeoutError:
            return
