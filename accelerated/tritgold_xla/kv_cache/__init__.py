"""The KV cache on the device, and how it stores a number."""
