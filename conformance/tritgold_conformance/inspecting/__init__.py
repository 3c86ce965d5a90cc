"""What a file holds, and what speaks against it."""
