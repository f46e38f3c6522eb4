"""`penstock security`: certificates, users, access lists, delegation tokens and quotas."""
