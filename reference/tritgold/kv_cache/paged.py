"""Paged storage: the rows of many sequences in pages of one pool, addressed by page and slot.

As in vLLM's PagedAttention (arXiv 2309.06180), over any scheme that keeps tokens by themselves. The numbers are those
of the contiguous cache, bit for bit; only where they lie differs.
"""

import numpy as np

from tritgold.errors import ConfigError, ContextError
from tritgold.kv_cache.base import SIDES, KvScheme, KvShape, Side
from tritgold.kv_cache.token_rows import TokenCache, TokenScheme


class PagePool:
    """``pages`` pages of ``page_size`` tokens: rows uint8 [pages, page_size, layers, row_bytes] of k and of v.

    Pages are handed out in the order 0, 1, 2 ...; of those given back the last one first.
    """

    def __init__(self, scheme: KvScheme, shape: KvShape, pages: int, page_size: int) -> None:
        """Raises ConfigError for a scheme that has no rows (``kv-paged``) and for sizes below 1 (``kv-option``)."""
        if not isinstance(scheme, TokenScheme):
            raise ConfigError(
                f"{scheme.name} cannot be paged",
                kind="kv-paged",
                hint="its tokens share scales with others; schemes that keep each token by itself can",
            )
        for option, value in (("pages", pages), ("page_size", page_size)):
            if value < 1:
                raise ConfigError("is not usable", kind="kv-option", thing=option, got=value, expected="at least 1")
        self.scheme, self.shape, self.pages, self.page_size = scheme, shape, pages, page_size
        sizes = {side: (pages, page_size, shape.layers, scheme.row_bytes(shape, side)) for side in SIDES}
        self._rows = {side: np.zeros(size, np.uint8) for side, size in sizes.items()}
        self._free = list(range(pages))[::-1]

    @property
    def free_pages(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """``count`` pages, or ContextError ``no-free-page`` and none."""
        self.check_free(count)
        return [self._free.pop() for _ in range(count)]

    def check_free(self, count: int) -> None:
        """Refuse (ContextError ``no-free-page``) to hand out more pages than are free."""
        if count > self.free_pages:
            hint = "finish a sequence first, or give the pool more pages"
            raise ContextError(
                "the page pool is exhausted", kind="no-free-page", got=count, expected=f"{self.free_pages}", hint=hint
            )

    def release(self, pages: list[int]) -> None:
        """Give pages back. ContextError (``page-address``) for one that is not out, or twice in the list."""
        for page in pages:
            self._check(np.array([page]), self.pages, "page")
        if len({*pages, *self._free}) != len(pages) + len(self._free):
            raise ContextError("a page is given back twice", kind="page-address", got=pages)
        self._free += pages

    def scatter(self, layer: int, side: Side, pages: np.ndarray, slots: np.ndarray, rows: np.ndarray) -> None:
        """Write rows uint8 [tokens, row_bytes] to (pages[t], slots[t]); of several to one address the last stays.

        Raises ContextError (``page-address``) for addresses outside the pool, negative ones too, writing nothing.
        """
        address = self._addresses(pages, slots)
        # NumPy leaves open which of several assignments to one address wins: keep the last one.
        _, last = np.unique(address[::-1], return_index=True)
        chosen = address.size - 1 - last
        self._rows[side][pages[chosen], slots[chosen], layer] = rows[chosen]

    def gather(self, layer: int, side: Side, pages: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Rows uint8 [tokens, row_bytes] from (pages[t], slots[t]); errors as for ``scatter``."""
        self._addresses(pages, slots)
        return self._rows[side][pages, slots, layer]

    def _addresses(self, pages: np.ndarray, slots: np.ndarray) -> np.ndarray:
        self._check(pages, self.pages, "page")
        self._check(slots, self.page_size, "slot")
        return pages * self.page_size + slots

    def _check(self, index: np.ndarray, end: int, what: str) -> None:
        outside = index[(index < 0) | (index >= end)]
        if outside.size:
            raise ContextError(f"no such {what}", kind="page-address", got=int(outside[0]), expected=f"0 to {end - 1}")


class PagedCache(TokenCache):
    """The cache of one sequence in a pool; page ``table[p // page_size]`` holds position p.

    Pages are taken when positions are appended, and given back by ``truncate``: by truncate(0) all of them. A pass of
    which the pool cannot hold all tokens is refused before it begins.
    """

    def __init__(self, pool: PagePool, capacity: int) -> None:
        super().__init__(pool.scheme, pool.shape, capacity)
        self._pool = pool
        self.table: list[int] = []

    def check_room(self, tokens: int) -> None:
        """Capacity of the sequence (``cache-full``), then pages of the pool (``no-free-page``)."""
        super().check_room(tokens)
        self._pool.check_free(max(0, self._missing(tokens)))

    def truncate(self, length: int) -> None:
        """Forget positions, and give back the pages that held nothing else."""
        super().truncate(length)
        kept = -(-self.length // self._pool.page_size)
        self._pool.release(self.table[kept:][::-1])  # the last one given back is the first one handed out
        del self.table[kept:]

    def _missing(self, tokens: int) -> int:
        return -(-(self.length + tokens) // self._pool.page_size) - len(self.table)

    def _write(self, layer: int, side: Side, rows: np.ndarray) -> None:
        self.table += self._pool.allocate(max(0, self._missing(rows.shape[0])))
        self._pool.scatter(layer, side, *self._where(self.length, self.length + rows.shape[0]), rows)

    def _read(self, layer: int, side: Side, end: int) -> np.ndarray:
        return self._pool.gather(layer, side, *self._where(0, end))

    def _where(self, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Page and slot of the positions start .. end - 1."""
        entry, slot = np.divmod(np.arange(start, end), self._pool.page_size)
        return np.array(self.table, np.int64)[entry], slot
