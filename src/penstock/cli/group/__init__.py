"""`penstock group …`"""
