"""The recordings that a developer has beside the project, in the folder that CTXPAGER_RECORDINGS names; mostly none."""

import os
from pathlib import Path

FOLDER = os.environ.get("CTXPAGER_RECORDINGS", "")
REQUESTS = sorted(Path(FOLDER).glob("recorded/*/*.jsonl.gz")) if FOLDER else []
TRACES = sorted(Path(FOLDER).glob("traces/*/*.jsonl.gz")) if FOLDER else []
