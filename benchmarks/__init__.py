"""Every number that the README quotes, one command each."""
