"""Producers' ids and transactions: begin, add to, end, mark, describe."""
