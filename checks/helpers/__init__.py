"""Parts that several checks share. None of them is a check."""
