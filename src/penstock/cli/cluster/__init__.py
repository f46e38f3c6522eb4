"""`penstock cluster …`"""
