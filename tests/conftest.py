"""Settings for all tests."""

import os

# Under `pytest -n` each process is parallel to others already: more threads in each would only get
# into each other's way. Before torch is imported, and for the processes that tests start.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
