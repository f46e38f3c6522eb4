"""What is going on: clients' metrics, lag, hot keys."""
