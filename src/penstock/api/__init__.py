"""One small file per Kafka API, named after it, in rooms by subject.

`table.py` collects them, `dispatch.py` routes frames to them.
"""
