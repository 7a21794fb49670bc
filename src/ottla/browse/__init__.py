"""What the command line and the console show of a cluster: records read, decoded, selected and written, and the items
of their documents. It knows neither a terminal nor a browser."""
