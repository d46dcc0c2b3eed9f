"""Your agent: any function of observations [batch, ...]. An agent of Stable-Baselines3 needs no file here."""


def thermostat(observations):
    """Heats below 19 degrees."""
    return (observations[:, 0] < 19).astype(int)
