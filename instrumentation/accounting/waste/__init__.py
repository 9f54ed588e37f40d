"""The tokens of a session by what they are and why they were waste."""
