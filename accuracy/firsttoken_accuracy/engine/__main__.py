"""Measure, calibrate, predict: see the package."""

import sys

from firsttoken_accuracy.engine.run import main

sys.exit(main())
