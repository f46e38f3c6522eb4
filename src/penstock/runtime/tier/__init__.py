"""Copies segments to object storage, serves them from there, and removes what retention no longer keeps."""
