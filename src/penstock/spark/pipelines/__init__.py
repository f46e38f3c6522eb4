"""Pipelines as YAML files: what is read, how it is transformed, and where it is written."""
