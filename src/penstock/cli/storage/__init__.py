"""`penstock storage …`"""
