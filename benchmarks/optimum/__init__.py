"""The best that could be done by knowing the future."""
