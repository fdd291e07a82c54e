"""Models: where they come from, where their sites are, and loading them."""
