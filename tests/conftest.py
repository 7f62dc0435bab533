"""For all fast tests: no deadline for Hypothesis, since machines are shared, and nobody asks the model hub.

CI runs the same examples every time, so that it fails for what was changed; everywhere else they are new each time.
"""

import os
import signal

from hypothesis import settings

settings.register_profile("shared", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("shared")
os.environ["HF_HUB_OFFLINE"] = "1"

# Who runs the tests in the background may ignore Ctrl-C, and what a test starts would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
