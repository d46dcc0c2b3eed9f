"""Frozen records, protocols and pure functions of arrays; imports guards."""
