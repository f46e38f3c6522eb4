"""Who gets in and what they may do: TLS, sign-in, access lists and quotas around the pure cores."""
