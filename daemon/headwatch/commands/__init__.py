"""The commands, a module a kind: each parses its flags, calls one action and prints the answer."""
