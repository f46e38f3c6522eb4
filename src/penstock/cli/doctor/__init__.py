"""`penstock doctor`"""
