"""The routes under `/api/v1` that the console's pages call. They are public."""
