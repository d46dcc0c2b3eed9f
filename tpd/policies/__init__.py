"""The policies that are explained, and tpd's own Q-learning; imports sources and below."""
