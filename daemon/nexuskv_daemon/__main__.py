"""`python -m nexuskv_daemon` is nexuskvd."""

import sys

from nexuskv_daemon.main import main

sys.exit(main())
