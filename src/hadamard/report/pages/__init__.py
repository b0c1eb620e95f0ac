"""Pages, and the tables on them."""
