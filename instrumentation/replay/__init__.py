"""Recorded sessions, and how policies would have played them."""
