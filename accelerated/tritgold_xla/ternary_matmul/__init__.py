"""int8 codes times trits: bit planes, the kernels that multiply them, and the choice of a kernel for a matrix."""
