"""A proxy that takes old tool results out of prompts when that saves money, and gives them back when the model asks."""
