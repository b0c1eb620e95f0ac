"""HTML pages and the tables on them."""
