"""The server around the calls: routes, doors, console, metrics, and the parts put together."""
