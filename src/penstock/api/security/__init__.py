"""Who somebody is, and what they may do and use: sign-in, access lists, credentials, tokens, quotas, tenants."""
