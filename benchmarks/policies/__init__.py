"""What every policy saves: ``python -m benchmarks.policies``."""
