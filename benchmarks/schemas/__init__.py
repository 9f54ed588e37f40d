"""What tool schemas on demand save: ``python -m benchmarks.schemas``."""
