"""The wire formats, one file each."""
