"""Any number of requests in bounded memory: the engine's rows are those of one block, and who is still there."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.outcome import Outcome, Totals
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.results import Summary
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.state import NOBODY, NODE, EngineState, groups_of
from firsttoken.simulation.step_table import StepTable


def play(blocks: Iterable[Requests], settings: EngineSettings, table: StepTable, summary: Summary) -> Totals:
    """All requests of all blocks at their own arrivals, as if they were one; what they saw is added to `summary`.

    Each block begins no earlier than the last ends. Memory is that of one block and of the requests in the engine.
    Raises SimulationInputError: no block, or one that begins too early.
    """
    engine, last = None, 0.0
    for block in blocks:
        if not len(block):
            continue
        start = float(block.arrival[0])
        if start < last:
            raise SimulationInputError(f"a block begins at {start} s, before the last one ends ({last} s): sort them")
        last = float(block.arrival[-1])
        following = FastEngine(block, settings, table)
        if engine is not None:
            engine.run_until(start)
            staying = _staying(engine.state)
            summary.add(_without(engine.outcome(), staying))
            _move(engine, following, staying)
            engine = following
            engine.send_all(len(staying))
        else:
            engine = following
            engine.send_all()
    if engine is None:
        raise SimulationInputError("there are no requests: give one block at least")
    engine.run_until(np.inf)
    outcome = engine.outcome()
    summary.add(outcome)
    return outcome.totals


def _staying(state: EngineState) -> NDArray[np.int64]:
    """Rows that are in the engine or on their way to it, rising."""
    rows, rep = state.rows, state.replicas[0]
    found = [*state.running[0, : rep["running"]].tolist(), *state.finishing[0, : rep["finishing"]].tolist()]
    following = rows["next"].tolist()
    for head in (*state.heads[0].tolist(), int(rep["pending_head"])):
        i = head
        while i != NOBODY:
            found.append(i)
            i = following[i]
    return np.array(sorted(found), np.int64)


def _without(outcome: Outcome, staying: NDArray[np.int64]) -> Outcome:
    """The same with the rows that stay marked as not ended: they are added when they leave."""
    outcome.finish[staying] = np.nan
    return outcome


def _move(engine: FastEngine, following: FastEngine, staying: NDArray[np.int64]) -> None:
    """The state of `engine` becomes that of `following`, in front of whose rows those that stay are put."""
    old, new = engine.state, following.state
    place = np.full(len(old.rows) + 1, NOBODY, np.int64)  # the last entry is for NOBODY = -1 itself
    place[staying] = np.arange(len(staying))
    rows = np.concatenate((old.rows[staying], new.rows))
    rows["next"][: len(staying)] = place[old.rows["next"][staying]]
    moved = engine.requests.take(staying)
    following.requests = _joined(moved, following.requests)
    rows["first_hash"] = following.requests.hash_offsets[:-1]
    kinds, nodes, place_of = _nodes(engine, following.requests.hashes)
    following.kinds = kinds
    rows["own"][: len(staying)] = place_of[old.rows["own"][staying]]
    rep = new.replicas
    rep[0] = old.replicas[0]
    for name in ("pending_head", "pending_tail"):
        rep[0][name] = place[rep[0][name]]
    for name in ("lru_head", "lru_tail", "spare"):
        rep[0][name] = place_of[rep[0][name]]
    following.state = old._replace(
        rows=rows,
        replicas=rep,
        running=place[old.running].astype(np.int32),
        finishing=place[old.finishing].astype(np.int32),
        heads=place[old.heads].astype(np.int32),
        tails=place[old.tails].astype(np.int32),
        nodes=nodes,
        hashes=np.searchsorted(kinds, following.requests.hashes).astype(np.int32),
    )


def _joined(first: Requests, second: Requests) -> Requests:
    columns = ("arrival", "prompt_tokens", "output_tokens", "priority", "hashes")
    values: dict[str, Any] = {n: np.concatenate((getattr(first, n), getattr(second, n))) for n in columns}
    offsets = np.concatenate((first.hash_offsets, second.hash_offsets[1:] + first.hash_offsets[-1]))
    return Requests(**values, hash_offsets=offsets, hash_tokens=second.hash_tokens)


def _nodes(engine: FastEngine, wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """Hashes that are cached or `wanted`, their nodes and the runs, and where each node was put."""
    old = engine.state.nodes[0]
    alive = np.flatnonzero(old["left"][: len(engine.kinds)])
    kinds = np.unique(np.concatenate((engine.kinds[alive], wanted)))
    before, after = groups_of(len(engine.kinds)), groups_of(len(kinds))
    runs = np.arange(before, len(old))
    place = np.full(len(old) + 1, NOBODY, np.int64)  # the last entry is for NOBODY = -1 itself
    place[alive] = np.searchsorted(kinds, engine.kinds[alive])
    place[runs] = runs - before + after
    kept = np.concatenate((alive, runs))
    nodes = np.zeros((1, after + len(runs)), NODE)
    nodes[0, place[kept]] = old[kept]
    for name in ("prev", "next"):
        nodes[0][name][place[kept]] = place[old[name][kept]]
    return kinds, nodes, place
