"""Groups of consumers and of Kafka Streams: membership, offsets, descriptions, and who coordinates them."""
