"""Reports as text, values and pages."""
