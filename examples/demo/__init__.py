"""`make demo`: a shop's evening on three nodes and Spark, with the usual failures.

The files in the order of the story: `shop` invents customers and orders, `generator` sends them, `pipeline.yaml`
processes them in Spark, `ledger` computes the expected results, `audit` compares, `plot` draws a chart, `story` runs it
all.
"""
