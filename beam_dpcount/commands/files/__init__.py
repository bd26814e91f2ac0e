"""Events read from files, and tables written to them."""
