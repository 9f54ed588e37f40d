"""The log in memory."""
