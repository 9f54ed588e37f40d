"""Bytes and values: the wire formats, pure and without state."""
