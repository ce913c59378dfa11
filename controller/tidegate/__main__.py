"""`python -m tidegate`."""

import sys

from tidegate.app.cli.main import main

sys.exit(main())
