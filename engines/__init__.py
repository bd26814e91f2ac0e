"""Prism, to run pipelines on this machine, and a network of loopback alone to run them in."""
