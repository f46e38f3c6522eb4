"""`penstock txn …`"""
