"""For all fast tests: no deadline for Hypothesis, since machines are shared, and nobody asks the model hub.

CI runs the same examples every time, so that it fails for what was changed; everywhere else they are new each time.
"""

import os

from hypothesis import settings

settings.register_profile("shared", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("shared")
os.environ["HF_HUB_OFFLINE"] = "1"
