"""The server: the one place with I/O."""
