"""Pipelines as files: one YAML says what is read, what is done with it, and where it goes."""
