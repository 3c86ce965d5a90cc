"""The KV cache on the device, and the schemes in which it stores numbers."""
