"""The dashboard, served beside the proxy."""
