"""FuelTaxi-v0: the paper's taxi environment, with a fuel tank and traffic."""
