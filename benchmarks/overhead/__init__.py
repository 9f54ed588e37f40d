"""What ctxpager costs a call: ``python -m benchmarks.overhead``."""
