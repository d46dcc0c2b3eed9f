"""Runs in MLflow, the only home of mlflow; imports show and below."""

import os

# before mlflow is imported, which reads some of it then; what the user has set stays
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # runs are nobody else's business
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the delivery thread asks again by itself
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # whoever runs says where it is
