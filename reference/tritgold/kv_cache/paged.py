"""Paged storage: the rows of many sequences in pages of one pool, addressed by page and slot.

As in vLLM's PagedAttention (arXiv 2309.06180), for any scheme that stores each token separately. The values are those
of the contiguous cache, bit for bit; only their place in memory differs.
"""

from collections.abc import Sequence

import numpy as np

from tritgold.errors import ConfigError, ContextError
from tritgold.kv_cache.base import SIDES, KvScheme, KvShape, Side
from tritgold.kv_cache.token_rows import TokenCache, TokenScheme
from tritgold.option_values import is_count


class PagePool:
    """``pages`` pages of ``page_size`` tokens: rows uint8 [pages, page_size, layers, row_bytes] of k and of v.

    Pages are allocated in the order 0, 1, 2 ...; a released page is allocated first, the last released one before all.
    """

    def __init__(self, scheme: KvScheme, shape: KvShape, pages: int, page_size: int) -> None:
        """Raises ConfigError for a scheme without token rows (``kv-paged``) and for sizes below 1 (``kv-option``)."""
        if not isinstance(scheme, TokenScheme):
            raise ConfigError(
                f"{getattr(scheme, 'name', repr(scheme))} cannot be paged",
                kind="kv-paged",
                hint="its tokens share scales with others; schemes that keep each token by itself can",
            )
        for option, value in (("pages", pages), ("page_size", page_size)):
            if not is_count(value, 1):
                raise ConfigError(
                    "is not usable", kind="kv-option", thing=option, got=repr(value), expected="at least 1"
                )
        self.scheme, self.shape, self.pages, self.page_size = scheme, shape, pages, page_size
        sizes = {side: (pages, page_size, shape.layers, scheme.row_bytes(shape, side)) for side in SIDES}
        self._rows = {side: np.zeros(size, np.uint8) for side, size in sizes.items()}
        self._free = list(range(pages))[::-1]

    def check_shareable(self) -> None:
        """Refuse (ConfigError ``kv-shared``) a scheme that stores the first token outside its pages."""
        if self.scheme.first is not None:
            raise ConfigError(
                f"{self.scheme.name} cannot share pages",
                kind="kv-shared",
                hint="the first token stands outside of them, in another scheme; do without prefix reuse",
            )

    @property
    def free_pages(self) -> int:
        """The number of pages that no sequence holds."""
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """The indices of ``count`` pages, which are no longer free.

        Raises ContextError ``no-free-page`` if fewer are free (then none is taken), ``page-address`` if count is not
        an integer from 0.
        """
        if not is_count(count):
            raise ContextError(
                "is not a count", kind="page-address", thing="pages", got=repr(count), expected="0 or more"
            )
        self.check_free(count)
        return [self._free.pop() for _ in range(count)]

    def check_free(self, count: int) -> None:
        """Refuse (ContextError ``no-free-page``) a count larger than the number of free pages."""
        if count > self.free_pages:
            hint = "finish a sequence first, or give the pool more pages"
            raise ContextError(
                "the page pool is exhausted", kind="no-free-page", got=count, expected=f"{self.free_pages}", hint=hint
            )

    def release(self, pages: list[int]) -> None:
        """Make pages free again. ContextError (``page-address``) as from ``check_out``; then none is released."""
        self.check_out(pages)
        self._free += pages

    def check_out(self, pages: Sequence[int]) -> None:
        """Refuse (ContextError ``page-address``) what is not a page, a page that is free, and a repeated page."""
        for page in pages:
            if not is_count(page, 0, self.pages - 1):
                raise _no_address("page", repr(page), self.pages)
        if len({*pages, *self._free}) != len(pages) + len(self._free):
            raise ContextError("is not out, or is named twice", kind="page-address", thing="a page", got=list(pages))

    def scatter(self, layer: int, side: Side, pages: np.ndarray, slots: np.ndarray, rows: np.ndarray) -> None:
        """Write rows uint8 [tokens, row_bytes] to (pages[t], slots[t]); if an address is repeated, the last row wins.

        Raises ContextError, and writes nothing: ``page-address`` for addresses outside the pool, negative ones too, and
        for a layer that does not exist; ``kv-array`` if rows is not one row of bytes for each address.
        """
        address = self._addresses(layer, pages, slots)
        width = (address.size, self._rows[side].shape[-1])
        if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.shape != width:
            got = f"{rows.dtype} {list(rows.shape)}" if isinstance(rows, np.ndarray) else f"a {type(rows).__name__}"
            raise ContextError(
                "cannot be stored", kind="kv-array", thing="rows", got=got, expected=f"uint8 {list(width)}"
            )
        # NumPy does not define which of several assignments to one address wins: keep only the last one.
        _, last = np.unique(address[::-1], return_index=True)
        chosen = address.size - 1 - last
        self._rows[side][pages[chosen], slots[chosen], layer] = rows[chosen]

    def gather(self, layer: int, side: Side, pages: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Rows uint8 [tokens, row_bytes] from (pages[t], slots[t]). ContextError ``page-address`` as in ``scatter``."""
        self._addresses(layer, pages, slots)
        return self._rows[side][pages, slots, layer]

    def _addresses(self, layer: int, pages: np.ndarray, slots: np.ndarray) -> np.ndarray:
        if not is_count(layer, 0, self.shape.layers - 1):
            raise _no_address("layer", repr(layer), self.shape.layers)
        for what, index, end in (("page", pages, self.pages), ("slot", slots, self.page_size)):
            if index.dtype.kind not in "iu" or index.shape != pages.shape:
                raise _no_address(what, f"{index.dtype} {list(index.shape)}", end)
            outside = index[(index < 0) | (index >= end)]
            if outside.size:
                raise _no_address(what, int(outside[0]), end)
        return pages * self.page_size + slots


def _no_address(what: str, got: object, end: int) -> ContextError:
    return ContextError(f"no such {what}", kind="page-address", got=got, expected=f"0 to {end - 1}")


class PagedCache(TokenCache):
    """The cache of one sequence in a pool; page ``table[p // page_size]`` holds position p.

    Pages are allocated when positions are appended, and released by ``truncate``; truncate(0) releases all of them. A
    pass with more tokens than the pool can hold is refused before it begins. The first ``shared`` pages have another
    owner: they are read, never written and never released.
    """

    def __init__(self, pool: PagePool, capacity: int) -> None:
        super().__init__(pool.scheme, pool.shape, capacity)
        self.pool = pool
        self.table: list[int] = []
        self.shared = 0

    def share(self, pages: list[int]) -> None:
        """From now on read the first positions from these ``pages`` of another owner, which must be full.

        An empty cache continues after them. For positions that are already stored, these pages must hold the same rows;
        the cache's previous pages for them now belong to the other owner. Raises ConfigError (``kv-shared``) for a
        scheme that cannot share, ContextError for fewer pages than are shared already (``page-shared``) and for more
        than the capacity (``cache-full``).
        """
        self.pool.check_shareable()
        positions = len(pages) * self.pool.page_size
        if len(pages) < self.shared:
            raise ContextError("is shared already", kind="page-shared", got=len(pages), expected=f"{self.shared} pages")
        super().check_room(max(0, positions - self.length))
        self.table[: len(pages)] = pages
        self.shared, self.length = len(pages), max(self.length, positions)

    def check_room(self, tokens: int) -> None:
        """Refuse tokens beyond the sequence's capacity (``cache-full``) or the pool's free pages (``no-free-page``)."""
        super().check_room(tokens)
        self.pool.check_free(self.pages_missing(tokens))

    def pages_missing(self, tokens: int) -> int:
        """The number of pages that appending ``tokens`` tokens will allocate."""
        return max(0, -(-(self.length + tokens) // self.pool.page_size) - len(self.table))

    def truncate(self, length: int) -> None:
        """Forget every position from ``length`` on, and release the pages that are no longer needed.

        Raises ContextError (``page-shared``), and forgets nothing, for a length inside a shared page: the next token
        would be written into it.
        """
        length = self.kept_by(length)
        if length < self.shared * self.pool.page_size and length % self.pool.page_size:
            expected = f"a multiple of {self.pool.page_size}"
            raise ContextError("ends inside a shared page", kind="page-shared", got=length, expected=expected)
        super().truncate(length)
        kept = -(-self.length // self.pool.page_size)
        # In reverse, so that the pages are allocated again in their old order.
        self.pool.release(self.table[max(kept, self.shared) :][::-1])
        del self.table[kept:]
        self.shared = min(self.shared, kept)

    def _write(self, layer: int, side: Side, rows: np.ndarray) -> None:
        self.table += self.pool.allocate(self.pages_missing(rows.shape[0]))
        self.pool.scatter(layer, side, *self._where(self.length, self.length + rows.shape[0]), rows)

    def _read(self, layer: int, side: Side, end: int) -> np.ndarray:
        return self.pool.gather(layer, side, *self._where(0, end))

    def _where(self, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Page and slot of the positions start .. end - 1."""
        entry, slot = np.divmod(np.arange(start, end), self.pool.page_size)
        return np.array(self.table, np.int64)[entry], slot
