"""`python -m loopd`."""

from loopd.main import main

raise SystemExit(main())
