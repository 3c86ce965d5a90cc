"""One model over several processes, on one machine or many."""
