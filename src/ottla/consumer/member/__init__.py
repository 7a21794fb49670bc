"""What a member of a group needs beside its session: the first broker, static members, verbs."""
