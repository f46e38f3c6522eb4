"""The transaction coordinator: who may write in which epoch, and how a transaction ends everywhere or nowhere. Pure."""
