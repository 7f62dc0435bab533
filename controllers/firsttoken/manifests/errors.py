"""What rendering refuses."""


class UnsupportedPlan(Exception):  # noqa: N818 - named after the condition it becomes
    """A plan that can't be rendered into objects that would work; the message says why and what would."""
