"""Who a client is, and what it may do and use: sign-in, access lists, credentials, tokens, quotas, tenants."""
