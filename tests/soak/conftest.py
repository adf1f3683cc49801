"Long tests: collected only by `make soak` (XFEVAL_SOAK=1)"
import os

collect_ignore_glob = [] if os.environ.get("XFEVAL_SOAK") else ["*.py"]
