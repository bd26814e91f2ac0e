"""What a count is, before anything runs: its arguments, its clock and its counter."""
