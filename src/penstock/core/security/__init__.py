"""Who may do what, and how much of it: access lists, sign-in, quotas. Pure."""
