"""Runs in MLflow, the only home of mlflow; imports show and below."""

import os

# set before mlflow is imported, which reads some of them then; values set by the user are kept
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # no data about runs leaves the machine
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the delivery thread retries by itself
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # tpd prints the address itself
