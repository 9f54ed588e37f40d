"""Settings: the models, where they are read from, and their reference."""
