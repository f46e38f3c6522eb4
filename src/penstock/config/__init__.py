"""Settings: one table of Kafka's own property names, read into frozen dataclasses.

`topic` and `broker` turn text into settings, `load` reads a configuration file, `describe` and `alter` serve the
admin APIs, `tables/` holds the rows, `document` writes docs/configuration.md from them.
"""
