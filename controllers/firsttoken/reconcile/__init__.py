"""gather → decide → act: this is `decide`, and the values that go in and come out (DESIGN §1)."""

from firsttoken.reconcile.decide import decide
from firsttoken.reconcile.observation import Decision, Event, Observation, Sync

__all__ = ["Decision", "Event", "Observation", "Sync", "decide"]
