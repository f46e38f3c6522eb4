"""`penstock log …`"""
