"""Your agent: any function of observations [batch, ...]. A Stable-Baselines3 agent needs no file here."""


def thermostat(observations):
    """Heats below 19 degrees."""
    return (observations[:, 0] < 19).astype(int)
