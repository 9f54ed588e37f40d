"""How long prompts stay in the provider's cache: keeping them warm, choosing lifetimes, and what going cold costs."""
