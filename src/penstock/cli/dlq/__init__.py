"""`penstock dlq …`"""
