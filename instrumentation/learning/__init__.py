"""What the log teaches of tools and sessions."""
