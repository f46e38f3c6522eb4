"""Topics that take only records with registered schema ids."""
