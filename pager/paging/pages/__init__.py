"""The pages of a prompt: what is known of each, and what stands in the place of those that left."""
