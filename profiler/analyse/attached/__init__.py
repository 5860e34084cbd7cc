"""A process that was observed from outside: the shares of its threads, its workers, and a verdict."""
