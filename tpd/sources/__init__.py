"""Where transitions come from: stepping, exploration, episodes, forks, Parquet; imports envs and below."""
