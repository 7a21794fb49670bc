"""Java, the JVM and Spark's Python workers: finding, starting, preparing them."""
