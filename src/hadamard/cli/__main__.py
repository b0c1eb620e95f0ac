"""`python -m hadamard.cli`."""

import sys

from hadamard.cli import main

sys.exit(main())
