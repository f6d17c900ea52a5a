"""Amounts of money as whole cents."""
