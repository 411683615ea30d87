"""`python -m prism_inference`: the same as the command `prism`."""

import sys

from .cli import main

sys.exit(main())
