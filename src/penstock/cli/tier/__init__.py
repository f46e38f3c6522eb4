"""`penstock tier`: what is in object storage, and whether it is whole."""
