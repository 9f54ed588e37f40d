"""Whose call it is: tenants, sessions and branches."""
