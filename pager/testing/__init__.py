"""A scripted model in place of a provider, and the demo that plays against it."""
