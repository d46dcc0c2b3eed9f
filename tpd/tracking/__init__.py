"""What is kept of a run, and the only home of mlflow."""
