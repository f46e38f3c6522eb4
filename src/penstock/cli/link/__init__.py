"""`penstock link`: topics of other clusters, mirrored here."""
