"""From a config to a finished run, and from a question to an answer; imports all rooms below `api`."""
