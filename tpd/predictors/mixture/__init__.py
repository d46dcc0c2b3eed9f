"""A network and a learned model, mixed with one weight for each event."""
