"""Side-by-side measurements of Penstock and its peers on one machine: `python -m bench`."""
