"""The telemetry as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from firsttoken.measurement.contract import Series
from firsttoken.simulation.telemetry import Histogram, Labels, Telemetry

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Exposition:
    """The page ``/metrics`` of one engine; ``refresh`` brings the gauges up to date, and returns vLLM's two."""

    def __init__(self, telemetry: Telemetry, model: str, refresh: Callable[[], tuple[int, int]]) -> None:
        self._telemetry, self._model, self._refresh = telemetry, model, refresh
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def page(self) -> bytes:
        """All series in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Family]:
        """For prometheus_client."""
        running, waiting = self._refresh()
        family: Family | None = None
        last = ""
        for series, labels, value in self._telemetry.samples():
            if series.name != last or family is None:
                if family is not None:
                    yield family
                family, last = _family(series), series.name
            _add(family, labels, value)
        if family is not None:
            yield family
        # By these, as in vLLM, the pod's own preStop hook sees whether anything is under way.
        for name, number in (("running", running), ("waiting", waiting)):
            own = GaugeMetricFamily(f"vllm:num_requests_{name}", f"Requests {name}.", labels=["model_name", "engine"])
            own.add_metric([self._model, "0"], number)
            yield own

    def describe(self) -> Iterator[Family]:
        """Nothing: series come and go with the buckets in use."""
        return iter(())


def _family(series: Series) -> Family:
    if series.kind == "histogram":
        return HistogramMetricFamily(series.name, series.help, labels=series.labels)
    kind = CounterMetricFamily if series.kind == "counter" else GaugeMetricFamily
    found: Family = kind(series.name, series.help, labels=series.labels)
    return found


def _add(family: Family, labels: Labels, value: Histogram | float) -> None:
    if isinstance(family, HistogramMetricFamily) and isinstance(value, Histogram):
        bounds = [*(repr(bound) for bound in value.bounds), "+Inf"]
        family.add_metric(list(labels), list(zip(bounds, value.cumulated(), strict=True)), value.total)
    elif not isinstance(family, HistogramMetricFamily) and not isinstance(value, Histogram):
        family.add_metric(list(labels), value)
