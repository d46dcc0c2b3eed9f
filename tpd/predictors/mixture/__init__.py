"""Mixes the predictions of a network and a learned model, with one weight for each outcome."""
