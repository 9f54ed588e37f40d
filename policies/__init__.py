"""Eviction policies: one file, one class, found by file name."""
