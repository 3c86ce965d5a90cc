"""int8 codes times trits: bit planes, the kernels that multiply them, and which kernel for which matrix."""
