"""The policies that are explained, and how tpd trains its own; imports sources and below."""
