"""Budgets, the conversions between them, and one ledger for a whole pipeline."""
