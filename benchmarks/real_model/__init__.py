"""What paging spares a real model: ``python -m benchmarks.real_model``."""
