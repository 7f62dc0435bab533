"""For all fast tests: no deadline for Hypothesis' examples, since machines are shared."""

from hypothesis import settings

settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
