"""The report of a command: one page of HTML that holds what was released, and needs no network."""
