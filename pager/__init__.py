"""A proxy that treats a model's context window as a cache over a durable session log."""
