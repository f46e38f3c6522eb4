"""What applications import as `penstock.Producer`, `penstock.Consumer` and so on, on librdkafka.

`penstock` and `penstock.client` export the public names lazily: importing them costs nothing until one is used.
"""
