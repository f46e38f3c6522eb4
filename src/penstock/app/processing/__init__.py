"""From reading records to committing that they are done: the lines of a worker."""
