"""FuelTaxi-v0: the taxi of the paper, with a fuel tank and traffic."""
