"""How a broker joins its cluster, what it does by itself while it is in it, and how it leaves."""
