"""The operator's own metrics, served beside it for Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

from firsttoken.reconcile import Decision

RECONCILES = Counter("firsttoken_operator_reconciles_total", "Reconciles by result.", ["result"])
RECONCILE_SECONDS = Histogram("firsttoken_operator_reconcile_seconds", "Duration of a reconcile, seconds.")
WRITES = Counter("firsttoken_operator_writes_total", "Writes to the API server by what was written.", ["what"])
ENVOY_ASKS = Counter(
    "firsttoken_operator_envoy_asks_total",
    "Envoys asked for what they have taken up, by result; skipped: services out of reach a moment ago.",
    ["result"],
)
QUEUE_LENGTH = Gauge("firsttoken_operator_queue_length", "Services that wait for a reconcile.")
SERVICES = Gauge("firsttoken_operator_services", "InferenceServices known.")

PROMETHEUS_ROUNDS = Counter(
    "firsttoken_operator_prometheus_rounds_total", "Rounds of questions to Prometheus about the fleet.", ["result"]
)

for _result in ("ok", "error", "refused", "retry", "unreachable"):
    RECONCILES.labels(_result)
for _result in ("answered", "failed", "skipped"):
    ENVOY_ASKS.labels(_result)
for _result in ("answered", "failed"):
    PROMETHEUS_ROUNDS.labels(_result)
for _what in ("object", "calibration", "status", "event", "deletion"):
    WRITES.labels(_what)


def count_writes(decision: Decision) -> None:
    """Count what one decision wrote."""
    WRITES.labels("object").inc(len(decision.apply))
    WRITES.labels("calibration").inc(len(decision.calibrate))
    WRITES.labels("status").inc(decision.status is not None)
    WRITES.labels("event").inc(len(decision.events))
    WRITES.labels("deletion").inc(len(decision.delete))
