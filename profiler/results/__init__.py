"""What lies in a folder, whichever kind of result it is, and everything that can be made of it."""
