"""The tools that a client offers: their definitions, short forms and the check of their arguments."""
