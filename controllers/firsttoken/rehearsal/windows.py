"""What users saw, window by window of virtual time: by revision, and by prompt-length bucket."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firsttoken.planning.workload import bucket_names
from firsttoken.rehearsal.serving import LOST, Fate, Serving
from firsttoken.simulation.quantiles import quantile

ALL = "all"


@dataclass(frozen=True)
class Cell:
    """Requests that arrived in a window, of a revision ("" where none took them) and a bucket. Seconds; NaN of none."""

    start: float
    end: float
    revision: str
    bucket: str
    requests: int
    served: int
    refused: int  # 400
    lost: int  # 500, 503, or cut off
    ttft_p50: float
    ttft_p95: float


def cells(serving: Serving, bounds: Sequence[int], window: float, seconds: float) -> Iterator[Cell]:
    """By window, revision (in the order of their coming) and bucket, `all` of them last; those without requests are
    left out.
    """
    arrival, sent = serving.requests.arrival, serving.fate != Fate.UNSENT
    buckets = np.searchsorted(np.asarray(bounds), serving.requests.prompt_tokens, side="left")
    names = bucket_names(bounds)
    for number in range(int(np.ceil(seconds / window))):
        start, end = number * window, min(seconds, (number + 1) * window)
        first, last = np.searchsorted(arrival, (start, end))
        rows = first + np.flatnonzero(sent[first:last])
        for revision in sorted(set(serving.revision[rows].tolist())):
            mine = rows[serving.revision[rows] == revision]
            for bucket, name in enumerate(names):
                chosen = mine[buckets[mine] == bucket]
                if len(chosen):
                    yield _cell(serving, chosen, (start, end), (revision, name))
            yield _cell(serving, mine, (start, end), (revision, ALL))


def _cell(serving: Serving, rows: NDArray[np.int64], time: tuple[float, float], of: tuple[int, str]) -> Cell:
    revision, bucket = of
    fates = serving.fate[rows]
    done = rows[(fates == Fate.SENT) & ~np.isnan(serving.fleet.rows["first"][rows])]
    ttft = serving.ttft(done)
    p50, p95 = (quantile(ttft, q) for q in (0.5, 0.95))
    return Cell(
        start=time[0],
        end=time[1],
        revision=serving.revisions[revision] if revision >= 0 else "",
        bucket=bucket,
        requests=len(rows),
        served=int((fates == Fate.SENT).sum()),
        refused=int((fates == Fate.REFUSED).sum()),
        lost=int(np.isin(fates, [int(f) for f in LOST]).sum()),
        ttft_p50=p50,
        ttft_p95=p95,
    )
