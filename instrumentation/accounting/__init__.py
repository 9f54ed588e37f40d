"""What sessions cost and why, from the log."""
