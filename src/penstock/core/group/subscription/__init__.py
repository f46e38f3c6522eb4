"""Which topics a subscription means: names, patterns, and whether they changed. Pure."""
