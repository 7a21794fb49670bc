"""The cluster as code: what is declared, what the cluster has, the plan between them, and how it is applied."""
