"""Reads the log, never the live call."""
