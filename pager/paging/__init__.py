"""What a prompt holds, and what leaves it."""
