"""Conversion of keys and values between JSON and bytes, with and without schemas, for display and for programs."""
