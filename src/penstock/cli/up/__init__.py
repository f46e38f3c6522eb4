"""`penstock up`: nodes and a gateway on this machine, shown to work."""
