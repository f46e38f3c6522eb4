"""APIs of cluster links: made and changed by operators, and what brokers and the controller exchange about them."""
