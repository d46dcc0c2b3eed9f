"""Records, contracts and pure functions of arrays; imports guards."""
