"""`penstock app run`: workers in processes, how many of them, their reports, new code."""
