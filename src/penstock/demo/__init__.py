"""`penstock demo`: a shop's evening on three nodes and Spark, with everything going wrong that usually does.

The files in the order of the story: `shop` makes up customers and orders, `generator` sends them, `pipeline.yaml` is
what Spark does with them, `ledger` knows what must come out, `audit` compares, `plot` draws, `story` is the whole.
"""
