"""The backends of the session log, one file each, found by name."""
