"""The words of a session: events that go in, effects that come out, runs, and what is due later."""
