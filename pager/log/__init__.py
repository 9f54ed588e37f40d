"""The durable truth: events, blobs and the stores that keep them."""
