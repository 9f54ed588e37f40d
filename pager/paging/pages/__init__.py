"""The pages of a prompt: what is known of each, and what takes the place of those that left."""
