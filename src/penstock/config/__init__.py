"""Settings: Kafka's own property names, read into frozen dataclasses.

`definitions/` holds a line for each setting and `tables` reads them. `topic` and `broker` turn text into settings,
`load` reads a configuration file, `describe` and `alter` serve the admin APIs, `document` writes
docs/configuration.md.
"""
