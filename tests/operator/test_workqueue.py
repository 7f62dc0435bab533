"""The queue: one reconcile per service at a time, none lost, failures ever more slowly."""

import asyncio
from collections.abc import Awaitable, Callable

from firsttoken_operator.workqueue import Workqueue


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), timeout=20))


async def settled(queue: Workqueue[str]) -> None:
    """Let the loop run until nothing is waiting."""
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(queue) == 0


def test_a_key_added_twice_is_one_piece_of_work() -> None:
    async def scenario() -> None:
        queue: Workqueue[str] = Workqueue()
        handled: list[str] = []

        async def handle(key: str) -> None:
            handled.append(key)

        queue.add("a")
        queue.add("a")
        queue.add("b")
        worker = asyncio.create_task(queue.work(handle))
        await settled(queue)
        worker.cancel()
        assert handled == ["a", "b"]

    run(scenario)


def test_a_key_added_during_its_own_work_is_worked_on_once_more_and_never_twice_at_once() -> None:
    async def scenario() -> None:
        queue: Workqueue[str] = Workqueue()
        running, most, count = 0, 0, 0
        go_on = asyncio.Event()

        async def handle(key: str) -> None:
            nonlocal running, most, count
            running, count = running + 1, count + 1
            most = max(most, running)
            if count == 1:
                queue.add(key)
                queue.add(key)
                await go_on.wait()
            running -= 1

        queue.add("a")
        workers = [asyncio.create_task(queue.work(handle)) for _ in range(3)]
        await settled(queue)
        assert count == 1, "the second piece of work waits for the first"
        go_on.set()
        await settled(queue)
        for worker in workers:
            worker.cancel()
        assert (count, most) == (2, 1)

    run(scenario)


def test_different_keys_are_worked_on_side_by_side() -> None:
    async def scenario() -> None:
        queue: Workqueue[str] = Workqueue()
        both = asyncio.Barrier(2)

        met: set[str] = set()
        done = asyncio.Event()

        async def handle(key: str) -> None:
            await both.wait()  # passes only if two keys are in work at once
            met.add(key)
            if len(met) == 2:
                done.set()

        queue.add("a")
        queue.add("b")
        workers = [asyncio.create_task(queue.work(handle)) for _ in range(2)]
        await asyncio.wait_for(done.wait(), timeout=10)
        for worker in workers:
            worker.cancel()

    run(scenario)


def test_failures_come_back_later_and_later_and_success_forgets_them() -> None:
    async def scenario() -> None:
        queue: Workqueue[str] = Workqueue(jitter=lambda: 0.0)
        pauses = [queue.retry("a") for _ in range(14)]
        assert pauses[:4] == [0.2, 0.4, 0.8, 1.6]
        assert pauses[-1] == 300.0
        queue.succeeded("a")
        assert queue.retry("a") == 0.2

    run(scenario)


def test_K8_retry_after_is_honoured() -> None:
    async def scenario() -> None:
        queue: Workqueue[str] = Workqueue(jitter=lambda: 0.0)
        assert queue.retry("a", at_least=7.0) == 7.0

    run(scenario)


def test_the_nearest_of_several_times_counts_and_an_earlier_add_replaces_them() -> None:
    async def scenario() -> None:
        queue: Workqueue[str] = Workqueue()
        handled = asyncio.Event()

        async def handle(_key: str) -> None:
            handled.set()

        queue.add_after("a", 3600)
        queue.add_after("a", 0.01)
        queue.add_after("a", 1800)
        worker = asyncio.create_task(queue.work(handle))
        await asyncio.wait_for(handled.wait(), timeout=10)
        worker.cancel()

    run(scenario)


def test_a_forgotten_key_does_not_come_back() -> None:
    async def scenario() -> None:
        queue: Workqueue[str] = Workqueue()
        queue.add_after("a", 0.0)
        queue.forget("a")
        await settled(queue)

    run(scenario)
