"""`penstock produce` and `penstock consume`."""
