"""What a file holds, and what is odd about it."""
