"""Pipelines as YAML files, with sources, steps and sinks."""
