"""The adapter's library is loaded by importing this; here there is none to load."""
