"""A cluster that answers from memory."""

from typing import Any

from cli import samples
from firsttoken_operator.kinds import Kind

SAME = object()


class FakeCluster:
    """Answers by kind; an exception is raised. `listed` is the list of services where it is not that of `get`."""

    def __init__(self, listed: Any = SAME, **answers: Any) -> None:
        self.listed = listed
        self.answers = {
            "InferenceService": samples.stored(samples.ready_status()),
            "InferenceRevision": [samples.record(samples.STABLE, "first revision")],
            "Namespace": {"metadata": {"name": "serving"}},
            "Event": [samples.event(samples.NOW, "Serving", "it serves")],
            **answers,
        }

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> Any:
        """One object."""
        assert (name, namespace) == (("serving", None) if kind.kind == "Namespace" else ("kb-assistant", "serving"))
        return self._answer(kind)

    async def list(self, kind: Kind, namespace: str | None, selector: str = "", fields: str = "") -> Any:
        """All objects."""
        assert namespace in ("serving", None)
        assert fields == ("involvedObject.name=kb-assistant" if kind.kind == "Event" else "")
        assert selector == ("firsttoken.dev/service=kb-assistant" if kind.kind == "InferenceRevision" else "")
        if kind.kind == "InferenceService" and self.listed is not SAME:
            return self.listed
        found = self._answer(kind)
        return [found] if isinstance(found, dict) else found

    def _answer(self, kind: Kind) -> Any:
        answer = self.answers[kind.kind]
        if isinstance(answer, BaseException):
            raise answer
        return answer
