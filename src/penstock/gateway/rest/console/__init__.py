"""What the console's pages call: public routes under `/api/v1`."""
