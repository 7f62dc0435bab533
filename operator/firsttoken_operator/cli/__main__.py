"""`python -m firsttoken_operator.cli`: the same as `firsttoken`, where scripts are not installed."""

import sys

from firsttoken_operator.cli.main import NAME, main

sys.exit(main(sys.argv[1:], NAME))
