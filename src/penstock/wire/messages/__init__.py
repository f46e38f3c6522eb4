"""One module for each API and each family of records, generated from `penstock/wire/definitions`."""
