"""The analysis of existing logs of agents."""
