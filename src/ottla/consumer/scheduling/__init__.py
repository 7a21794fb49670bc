"""Whose turn it is: fair scheduling over partitions, and handing runs out."""
