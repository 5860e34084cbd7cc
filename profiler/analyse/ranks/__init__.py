"""A job of several ranks: who they are, how long they wait for each other, and for whom."""
